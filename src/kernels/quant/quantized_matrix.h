// For tests: all formats of kernels/quant/formats.h, a matrix in one of them on the host, and numbers that
// are hard to round.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/quant/formats.h"

namespace fathom::kernels {

using QuantizedFormats = testing::Types<TensorScaled<fp8_e4m3>, TensorScaled<fp8_e5m2>, RowScaled<fp8_e4m3>,
                                        RowScaled<fp8_e5m2>, RowScaled<int8_t>, BlockScaled<fp8_e4m3>,
                                        BlockScaled<fp8_e5m2>, BlockScaled<int8_t>, Mxfp8, Mxfp4, Nvfp4>;

// Those to which a scale of the tensor is given.
using GivenScaleFormats = testing::Types<TensorScaled<fp8_e4m3>, TensorScaled<fp8_e5m2>, Nvfp4>;

// The host's memory.
template <class Format>
struct QuantizedMatrix {
  int64_t rows, columns;
  std::vector<CodeOf<Format>> codes;
  std::vector<ScaleOf<Format>> scales;
  float tensor_scale = 1;

  QuantizedMatrix(int64_t rows, int64_t columns)
      : rows(rows),
        columns(columns),
        codes(static_cast<size_t>(rows * code_columns<Format>(columns))),
        scales(static_cast<size_t>(rows * scale_columns<Format>(columns))) {}
  Format format(bool transposed = false) {
    return views<Format>(rows, columns, codes.data(), scales.data(), &tensor_scale, transposed);
  }
};

// The magnitudes of a format's codes, in ascending order.
template <class Format>
std::vector<double> code_magnitudes() {
  std::vector<double> magnitudes;
  for (uint32_t code = 0; code < 128; ++code) {
    if constexpr (kPacked<Format>) {
      if (code < 8) magnitudes.push_back(static_cast<float>(fp4_e2m1::from_bits(code)));
    } else if constexpr (std::is_same_v<CodeOf<Format>, int8_t>) {
      magnitudes.push_back(code);
    } else {
      const float value = static_cast<float>(CodeOf<Format>::from_bits(code));
      if (std::isfinite(value)) magnitudes.push_back(value);
    }
  }
  return magnitudes;
}

enum class Numbers {
  varied,      // groups of very different size, zeros of both signs, subnormals
  ties,        // halfway between two codes, in groups whose scale is 1
  not_finite,  // varied, with infinities and NaNs here and there
};

template <class Format>
std::vector<bf16> test_numbers(int64_t count, Numbers kind, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const std::vector<double> codes = code_magnitudes<Format>();
  std::vector<bf16> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits  = static_cast<uint32_t>(random());
    const int64_t part   = i / 16;  // the smallest group
    const float sign     = bits & 1 ? -1.0f : 1.0f;
    const size_t between = bits / 2 % (codes.size() - 1);
    if (kind == Numbers::ties) {
      const double tie = (codes[between] + codes[between + 1]) / 2;
      numbers.emplace_back(static_cast<float>(i % 16 == 0 ? codes.back() : sign * tie));
    } else if (kind == Numbers::not_finite && bits % 509 == 0) {
      numbers.emplace_back(bits & 512 ? std::numeric_limits<float>::quiet_NaN()
                                      : sign * std::numeric_limits<float>::infinity());
    } else if (part % 29 == 3) {
      numbers.emplace_back(sign * 0.0f);
    } else if (part % 29 == 4) {
      numbers.push_back(bf16::from_bits(bits >> 8 & 0x807f));  // zeros and subnormals
    } else if (part % 29 == 5 && part / 29 % 8 == 0) {
      numbers.push_back(bf16::from_bits(0x7f7f ^ (bits & 0x8000)));  // the largest
    } else {
      numbers.emplace_back(std::ldexp(normal(random), static_cast<int>(part / 3 * 37 % 41) - 20));
    }
  }
  return numbers;
}

}  // namespace fathom::kernels
