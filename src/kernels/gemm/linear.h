// y(t, n) = bias(n) + sum_k x(t, k) w(n, k), or that added to y
//
// bytes   2 N K of weights in bf16, 1.06 N K in int8, once, whatever T
// flops   2 T N K
// limit   memory bandwidth up to a handful of rows (T flops a byte), the FMA units beyond
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/gemm/dense_matrix.h"

namespace fathom::kernels {

// x [T, K]; w [N, K], rows contiguous; bias [N] or empty (no data); y [T, N], rows contiguous. The order of
// summation is fixed, so that a number of y depends on nothing but its rows of x and w: not on T, N, nor the
// other rows.
void linear_reference(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
                      View<float, 2> y, const Execution& on);
void linear_cpu(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
                View<float, 2> y, const Execution& on);
// For at most `rows` rows of `depth` columns on `threads` threads.
int64_t linear_cpu_scratch_bytes(int64_t rows, int64_t depth, int threads);

}  // namespace fathom::kernels
