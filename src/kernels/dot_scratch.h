// What dot_tile.h works in, in sizes that hold for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/execution.h"
#include "core/expect.h"

namespace fathom::kernels {

inline constexpr int64_t kPanel = 24;  // outputs whose weights are converted at once: 276 KB for 2880 inputs
inline constexpr int64_t kRowBlock = 48;   // rows that pass over a panel together: 553 KB of 2880
inline constexpr int64_t kOrder    = 128;  // a prepared row is padded to a multiple, in floats

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// One thread's.
struct TileScratch {
  bf16* panel;      // kPanel x round_up(depth, kOrder)
  float* partials;  // kRowBlock x 6 vectors of 16
  float* sums;      // kRowBlock x kPanel

  static constexpr int64_t kPartials = kRowBlock * 6 * 16, kSums = kRowBlock * kPanel;
  static constexpr int64_t floats(int64_t depth) {
    return kPanel * round_up(depth, kOrder) / 2 + kPartials + kSums;
  }
  static TileScratch at(float* memory, int64_t depth) {
    float* partials = memory + kPanel * round_up(depth, kOrder) / 2;
    return {reinterpret_cast<bf16*>(memory), partials, partials + kPartials};
  }
};

// Takes pieces off the front of an Execution's scratch.
class ScratchCutter {
 public:
  explicit ScratchCutter(View<std::byte, 1> scratch) : next_(scratch.data()), left_(scratch.extent(0)) {
    FATHOM_EXPECT(reinterpret_cast<uintptr_t>(next_) % 64 == 0, "scratch must be aligned to 64 bytes");
  }

  template <class T>
  T* cut(int64_t elements) {
    const int64_t bytes = round_up(elements * static_cast<int64_t>(sizeof(T)), 64);
    FATHOM_EXPECT(bytes <= left_, "scratch is too small: ask the op's scratch_bytes how much it takes");
    T* piece = reinterpret_cast<T*>(next_);
    next_ += bytes;
    left_ -= bytes;
    return piece;
  }

 private:
  std::byte* next_;
  int64_t left_;
};

}  // namespace fathom::kernels
