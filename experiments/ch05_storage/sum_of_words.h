// What the lookups of this chapter compute of the bytes that they read.
#pragma once

#include <cstdint>

namespace fathom::lab {

// Of the 32-bit words of `bytes` bytes, a multiple of 4.
inline int64_t sum_of_words(const uint8_t* data, int64_t bytes) {
  const auto* words = reinterpret_cast<const int32_t*>(data);
  int64_t sum       = 0;
  for (int64_t w = 0; w < bytes / 4; ++w) sum += words[w];
  return sum;
}

}  // namespace fathom::lab
