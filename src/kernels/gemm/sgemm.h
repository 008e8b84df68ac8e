// c(m, n) = sum_k a(m, k) b(k, n), or that added to c, in fp32
//
// bytes   4 (M K + K N + M N)
// flops   2 M N K
// limit   the FMA units, from some 64 of each extent on
//
// Training needs x W^T, dy W and dy^T x of the same matrices: strides say which (View's second constructor).
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/gemm/dense_matrix.h"

namespace fathom::kernels {

// a [M, K] and b [K, N] with any strides; c [M, N], rows contiguous, disjoint from both. The order of
// summation depends on K alone, so an element of c has the same bits whatever M, N and the number of threads.
// Without `on.threads` it runs on the calling thread.
void sgemm_reference(View<const float, 2> a, View<const float, 2> b, Output output, View<float, 2> c,
                     const Execution& on);
void sgemm_cpu(View<const float, 2> a, View<const float, 2> b, Output output, View<float, 2> c,
               const Execution& on);
// Enough for products of any size.
int64_t sgemm_cpu_scratch_bytes(int threads);

// a^T as a view.
inline View<const float, 2> transposed(View<const float, 2> a) {
  return {a.data(), {a.extent(1), a.extent(0)}, {a.stride(1), a.stride(0)}};
}

}  // namespace fathom::kernels
