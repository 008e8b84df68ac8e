// out = a b, n x n, row-major fp32: as ch07/matmul_tiled.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::tile_size {

struct Matmul {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;

  Matmul(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void no_tile(const Matmul& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile_16(const Matmul& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile_32(const Matmul& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile_64(const Matmul& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile_128(const Matmul& p, StreamRef stream);

}  // namespace fathom::lab::tile_size
