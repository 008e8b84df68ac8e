// out = a b, n x n, row-major fp32.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::matmul_tiled {

struct Matmul {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;

  Matmul(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void naive(const Matmul& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tiled(const Matmul& p, StreamRef stream);

}  // namespace fathom::lab::matmul_tiled
