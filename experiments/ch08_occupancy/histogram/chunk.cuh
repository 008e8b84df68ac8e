// Sixteen bytes at a time.
#pragma once

#include <cstdint>

namespace fathom::lab::histogram {

template <class Count>
__device__ void count_chunk(uint4 chunk, Count count) {
  const uint32_t words[] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int b = 0; b < 16; ++b) count(words[b / 4] >> 8 * (b % 4) & 0xff);
}

}  // namespace fathom::lab::histogram
