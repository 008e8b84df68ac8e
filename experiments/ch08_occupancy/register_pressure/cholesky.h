// The problem: L L^T = A + 32 I for a batch of symmetric 24 x 24 matrices, L lower triangular, fp32. Element
// (i, j), j <= i, of matrix b of either is at (element(i, j), b): neighbours in memory are neighbours in the
// batch.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::register_pressure {

inline constexpr int kOrder    = 24;
inline constexpr int kElements = kOrder * (kOrder + 1) / 2;  // 300 on and below the diagonal
inline constexpr float kRidge  = 32;  // makes A, of numbers in [-1, 1), positive definite

FATHOM_HD constexpr int element(int i, int j) { return i * (i + 1) / 2 + j; }

struct Cholesky {
  View<const float, 2> in;
  View<float, 2> out;

  Cholesky(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void whole_matrix(const Cholesky& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void by_columns(const Cholesky& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_warps(const Cholesky& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void eight_warps(const Cholesky& p, StreamRef stream);

}  // namespace fathom::lab::register_pressure
