// out = a b^T of e4m3 matrices with scales of blocks: one for 128 numbers of a row of a, one for 128 x 128
// numbers of b. a is m x k, b is n x k, out is m x n in bf16, row-major; n and k are multiples of 16.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::matmul {

struct GemmFp8 {
  int64_t m, n, k;
  // Whether blocks have scales of their own. Where not, all are 1, and a variant with one scale for a tensor
  // computes the same.
  bool own_scales;
  View<const fp8_e4m3, 2> a, b;
  View<const float, 2> a_scales;  // ceil(k / 128) x m; between rows, a multiple of 4 numbers
  View<const float, 2> b_scales;  // ceil(n / 128) x ceil(k / 128); the same
  View<char, 1> scratch;          // 32 MiB for cuBLASLt
  View<bf16, 2> out;

  GemmFp8(const Point& at, Arena& arena);  // the point has `size` = m = n = k, and `own_scales`
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void fp8_per_tensor(const GemmFp8&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp8_two_parts(const GemmFp8&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp8_scales_by_tma(const GemmFp8&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp8_turns(const GemmFp8&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp8_block_scales(const GemmFp8&, StreamRef);

}  // namespace fathom::lab::matmul
