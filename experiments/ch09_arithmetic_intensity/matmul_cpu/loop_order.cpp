// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   but b is read again for every row of out: 4 n^3 bytes from the level that holds b
// flops   2 n^3
// limit   FMA peak in theory; here two loads and a store for every FMA, and the way from b to the core
// idea    k outside j: the inner loop runs along rows of b and out, so the compiler vectorises it, and its
//         additions are independent
#include <cstring>

#include "matmul.h"

namespace fathom::lab::matmul_cpu {

void loop_order(const MatMul& p, Context&) {
  const int64_t n       = p.n;
  const float* a        = p.a.data();
  const float* b        = p.b.data();
  float* __restrict__ c = p.out.data();
  for (int64_t i = 0; i < n; ++i) {
    float* row = c + i * n;
    std::memset(row, 0, sizeof(float) * n);
    for (int64_t k = 0; k < n; ++k) {
      const float scale = a[i * n + k];
      for (int64_t j = 0; j < n; ++j) row[j] += scale * b[k * n + j];
    }
  }
}

}  // namespace fathom::lab::matmul_cpu
