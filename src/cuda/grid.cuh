// Grid-stride loops over device memory: the launch shape they share.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fathom {

inline constexpr int kGridStrideBlock = 256;

// Blocks of kGridStrideBlock threads for n items, at least one; beyond 2^20 blocks each thread loops.
inline unsigned grid_stride_blocks(int64_t n) {
  return static_cast<unsigned>(
      std::min<int64_t>(1 << 20, std::max<int64_t>(1, (n + kGridStrideBlock - 1) / kGridStrideBlock)));
}

}  // namespace fathom
