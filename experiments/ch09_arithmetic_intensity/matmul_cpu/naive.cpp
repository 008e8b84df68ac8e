// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   8 n^2 read + 4 n^2 written, each once if the caches were perfect
// flops   2 n^3
// limit   FMA peak in theory; here a chain of n dependent additions, and 4 bytes used of each line of b
// idea    the definition: one dot product for each element of out
#include "matmul.h"

namespace fathom::lab::matmul_cpu {

void naive(const MatMul& p, Context&) {
  const int64_t n = p.n;
  const float* a  = p.a.data();
  const float* b  = p.b.data();
  float* c        = p.out.data();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

}  // namespace fathom::lab::matmul_cpu
