// Arrays of numbers as codes of a byte with one scale: code = number * scale, rounded.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace fathom::lab::fp8 {

template <class T>
float largest(std::span<const T> numbers) {
  float most = 0;
  for (const T x : numbers) most = std::max(most, std::abs(static_cast<float>(x)));
  return most;
}

// That gives `most` the largest code; 1 where all numbers are 0.
template <class Code>
float scale_for(float most) {
  return most > 0 ? Code::max() / most : 1;
}

// As many codes as numbers.
template <class Code, class T>
void encode(std::span<const T> numbers, float scale, uint8_t* codes) {
  for (size_t i = 0; i < numbers.size(); ++i) codes[i] = Code(static_cast<float>(numbers[i]) * scale).bits;
}

// The numbers of all codes: a lookup is less work than a conversion.
template <class Code, class T>
std::array<T, 256> decoded(float scale) {
  std::array<T, 256> numbers;
  for (uint32_t code = 0; code < 256; ++code)
    numbers[code] = T(static_cast<float>(Code::from_bits(code)) / scale);
  return numbers;
}

}  // namespace fathom::lab::fp8
