// A matrix in whole tiles of 128 x 128, as tensor-core kernels like their operands:
//   out(i, j) = in(i, j) inside of in, and 0 around it, fp32.
// Rows of in begin at multiples of 16 bytes; the gap between its last column and the next row is not part of
// it.
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

namespace fathom::lab::tma_tile {

struct Pad {
  static constexpr int kTile = 128;

  View<const float, 2> in;  // rows x columns
  View<float, 2> out;       // both rounded up to whole tiles, no gaps

  Pad(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void vectors(const Pad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tensor_map_copy(const Pad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void memcpy_2d(const Pad& p, StreamRef stream);

}  // namespace fathom::lab::tma_tile
