// Scratch memory of linear_cpu and experts_cpu, in sizes that hold for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/expect.h"
#include "kernels/execution.h"

namespace fathom::kernels {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Outputs of a panel, which all rows pass over while it stays in L2: 138 KB in bf16 with 2880 inputs, 276 KB
// in fp32.
inline constexpr int64_t kPanel = 24;
// Rows of a block, which pass over a panel together: 553 KB.
inline constexpr int64_t kRowBlock = 48;
// A permuted row is padded to a multiple of this many floats.
inline constexpr int64_t kRowPadding = 128;

// Floats in the vectors of partial sums of a block of rows and six outputs.
inline constexpr int64_t kPartials = kRowBlock * 6 * 16;
inline constexpr int64_t kSums     = kRowBlock * kPanel;

// A bump allocator over an Execution's scratch; every piece is aligned to 64 bytes. Without memory it only
// counts the bytes.
class ScratchAllocator {
 public:
  ScratchAllocator() = default;  // counts only
  explicit ScratchAllocator(View<std::byte, 1> scratch) : memory_(scratch.data()), size_(scratch.extent(0)) {
    FATHOM_EXPECT(reinterpret_cast<uintptr_t>(memory_) % 64 == 0, "scratch must be aligned to 64 bytes");
  }

  template <class T>
  T* take(int64_t elements) {
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

// Scratch of one thread for dot_products over `depth` columns.
struct TileScratch {
  float* panel;     // kPanel x round_up(depth, kRowPadding)
  float* partials;  // kPartials
  float* sums;      // kSums

  TileScratch(int64_t depth, ScratchAllocator& allocator)
      : panel(allocator.take<float>(kPanel * round_up(depth, kRowPadding))),
        partials(allocator.take<float>(kPartials)),
        sums(allocator.take<float>(kSums)) {}

  static int64_t bytes(int64_t depth) {
    ScratchAllocator counter;
    TileScratch(depth, counter);
    return counter.used();
  }
};

// A TileScratch for each thread.
class TileScratches {
 public:
  TileScratches(int64_t depth, int threads, ScratchAllocator& allocator)
      : depth_(depth),
        bytes_(TileScratch::bytes(depth)),
        memory_(allocator.take<std::byte>(threads * bytes_)) {}

  TileScratch of(int worker) const {
    ScratchAllocator allocator({memory_ + worker * bytes_, {bytes_}});
    return TileScratch(depth_, allocator);
  }

 private:
  int64_t depth_, bytes_;
  std::byte* memory_;
};

}  // namespace fathom::kernels
