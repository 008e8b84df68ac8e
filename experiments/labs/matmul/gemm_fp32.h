// out = a b^T of fp32 matrices: a is m x k, b is n x k, out is m x n, row-major. n and k are multiples of 4
// (a row is then a whole number of 16-byte vectors, which TMA asks for).
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::matmul {

// Multiplied in fp32, on the CUDA cores.
struct GemmFp32 {
  int64_t m, n, k;
  View<const float, 2> a, b;
  View<char, 1> scratch;  // 32 MiB for cuBLASLt
  View<float, 2> out;

  GemmFp32(const Point& at, Arena& arena);  // the point has `size` = m = n = k
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

// The same numbers multiplied as tf32, on the tensor cores: of 23 bits of mantissa, 10 are used.
struct GemmTf32 : GemmFp32 {
  using GemmFp32::GemmFp32;
  Sum expected(int64_t i, int64_t j) const;
};

}  // namespace fathom::lab::matmul
