// The problem: an EmbeddingBag whose result is wanted by columns, fp32:
//   out(d, i) = sum over k < 8 of table(id(i, k), d)        rows of 32 numbers, 128 bytes
// A row is read by the 32 lanes of a warp, a line of out is written by them: between the two the numbers
// change threads, through a tile in shared memory.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::shared_memory_carveout {

inline constexpr int kWidth = 32, kBag = 8;

struct EmbeddingBag {
  View<const int32_t, 2> id;   // [n, kBag]
  View<const float, 2> table;  // [rows, kWidth]
  View<float, 2> out;          // [kWidth, n]

  EmbeddingBag(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t d, int64_t i) const;
};

// What a block keeps in shared memory, and how that was declared.
enum class Shared {
  static_tile,     // 33 KiB, known to the compiler: at most 48 KiB
  dynamic_tile,    // the same, sized by the launch
  tile_and_table,  // 50 KiB and the table, sized by the launch; beyond 48 KiB a kernel has to ask
};
// The share of the 228 KiB that the kernel prefers as shared memory, in percent; what is left of 256 KiB is
// L1. The next larger of the capacities 0, 8, 16, 32, 64, 100, 132, 164, 196 and 228 KiB is taken.
inline constexpr int kDriversChoice = -1, kAllShared = 100, k132KiB = 57;

// Instances are in embedding_bag.cu. The preference belongs to a kernel, so each has a kernel of its own.
template <Shared kShared, int kCarveout>
void launch(const EmbeddingBag& p, StreamRef stream);

FATHOM_CUDA_LAUNCHER void static_tile(const EmbeddingBag& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void dynamic_tile(const EmbeddingBag& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void prefer_shared(const EmbeddingBag& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void prefer_l1(const EmbeddingBag& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void table_in_shared(const EmbeddingBag& p, StreamRef stream);

}  // namespace fathom::lab::shared_memory_carveout
