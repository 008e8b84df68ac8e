// A barrier of all CTAs of a grid, in one 32-bit word of global memory that is zero before its first use.
//
// All CTAs must be resident at once: a CTA that waits keeps its place. The word resets itself: CTA 0 adds
// 2^31 - (CTAs - 1) and each other CTA 1, so a complete round adds 2^31. It flips bit 31 and leaves the other
// bits zero (cooperative groups' grid.sync() counts in the same way). So nothing is cleared between launches,
// a captured graph may be replayed, and grids of different sizes may use the word one after another.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"

namespace fathom {

class GridBarrier {
 public:
  __device__ explicit GridBarrier(uint32_t* word) : word_(word) {}

  // By one thread of each CTA. What it wrote is visible to every thread that waits, and so is what other
  // threads of the CTA wrote before a CTA or warp barrier that precedes this.
  __device__ void arrive() {
    before_ = ptx::atom_add_release(word_, blockIdx.x == 0 ? kFlip - (gridDim.x - 1) : 1);
  }
  // By the same thread: until all CTAs have arrived.
  __device__ void wait() const {
    while (((ptx::ld_acquire(word_) ^ before_) & kFlip) == 0) {
    }
  }

 private:
  static constexpr uint32_t kFlip = uint32_t{1} << 31;

  uint32_t* word_;
  uint32_t before_ = 0;
};

}  // namespace fathom
