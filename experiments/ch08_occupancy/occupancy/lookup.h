// The problem: out(i) = table(code(i)), n codes of 4 bytes, a table of 16384 fp32: as in decoding with a
// codebook.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::occupancy {

inline constexpr int kEntries      = 16384;
inline constexpr int kSharedMemory = kEntries * static_cast<int>(sizeof(float));  // of a block: its own table

struct Lookup {
  View<const int32_t, 1> code;  // 0 <= code < kEntries
  View<const float, 1> table;
  View<float, 1> out;

  Lookup(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void block_256(const Lookup& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void block_512(const Lookup& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void block_1024(const Lookup& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vectorized(const Lookup& p, StreamRef stream);

}  // namespace fathom::lab::occupancy
