// A batch of sequences in whole tiles of 32 tokens x 128 numbers, as attention kernels like them:
//   out(b, i, j) = in(b, i, j) inside of sequence b, and 0 around it, fp32.
// Sequences lie one behind the other: the rows behind the last token of one are the first of the next.
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

namespace fathom::lab::tma_tile_3d {

inline constexpr int kRows = 32, kColumns = 128;  // of a tile

struct Sequences {
  View<const float, 3> in;  // (sequence, token, number); rows are multiples of 16 bytes, 512 at most
  View<float, 3> out;       // tokens rounded up to whole tiles, 128 numbers

  Sequences(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t b, int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void bulk_rows(const Sequences& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void map_2d(const Sequences& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void map_3d(const Sequences& p, StreamRef stream);

}  // namespace fathom::lab::tma_tile_3d
