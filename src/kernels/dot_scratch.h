// The memory that linear_cpu and experts_cpu work in, in sizes that hold for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/execution.h"
#include "core/expect.h"

namespace fathom::kernels {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

inline constexpr int64_t kPanel = 24;  // outputs that rows pass over together: 138 KB in bf16, of 2880 inputs
inline constexpr int64_t kRowBlock = 48;   // rows that pass over them together: 553 KB
inline constexpr int64_t kOrder    = 128;  // a prepared row is padded to a multiple of so many floats

inline constexpr int64_t kPartials =
    kRowBlock * 6 * 16;  // vectors of a block's sums with six outputs, in floats
inline constexpr int64_t kSums = kRowBlock * kPanel;

// Takes pieces off the front of an Execution's scratch, each at a multiple of 64 bytes.
class ScratchCutter {
 public:
  ScratchCutter() = default;  // cuts nothing and counts
  explicit ScratchCutter(View<std::byte, 1> scratch) : memory_(scratch.data()), size_(scratch.extent(0)) {
    FATHOM_EXPECT(reinterpret_cast<uintptr_t>(memory_) % 64 == 0, "scratch must be aligned to 64 bytes");
  }

  template <class T>
  T* cut(int64_t elements) {
    const int64_t at = used_;
    used_ += round_up(elements * static_cast<int64_t>(sizeof(T)), 64);
    if (size_ < 0) return nullptr;
    FATHOM_EXPECT(used_ <= size_, "scratch is too small: ask the op's scratch_bytes how much it takes");
    return reinterpret_cast<T*>(memory_ + at);
  }

  int64_t used() const { return used_; }

 private:
  std::byte* memory_ = nullptr;
  int64_t size_      = -1;
  int64_t used_      = 0;
};

// What a thread needs for dot_products of that depth.
struct TileScratch {
  bf16* panel;      // kPanel x round_up(depth, kOrder)
  float* partials;  // kPartials
  float* sums;      // kSums

  TileScratch(int64_t depth, ScratchCutter& cutter)
      : panel(cutter.cut<bf16>(kPanel * round_up(depth, kOrder))),
        partials(cutter.cut<float>(kPartials)),
        sums(cutter.cut<float>(kSums)) {}

  static int64_t bytes(int64_t depth) {
    ScratchCutter counter;
    TileScratch(depth, counter);
    return counter.used();
  }
};

// Room for one TileScratch for each thread.
class TileScratches {
 public:
  TileScratches(int64_t depth, int threads, ScratchCutter& cutter)
      : depth_(depth), bytes_(TileScratch::bytes(depth)), memory_(cutter.cut<std::byte>(threads * bytes_)) {}

  TileScratch of(int worker) const {
    ScratchCutter cutter({memory_ + worker * bytes_, {bytes_}});
    return TileScratch(depth_, cutter);
  }

 private:
  int64_t depth_, bytes_;
  std::byte* memory_;
};

}  // namespace fathom::kernels
