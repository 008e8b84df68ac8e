// y = A x                                       n x n, fp32
//
// bytes   4 n^2
// flops   2 n^2
// limit   bandwidth of the level that holds A
// idea    restricted, in a file whose sums may be regrouped (-fassociative-math and the two flags that it
//         needs): the compiler keeps a vector of sums, and rounds otherwise
#include "matvec.h"

namespace fathom::lab::autovectorization {
namespace {

void multiply(const float* a, const float* x, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = 0;
    for (int64_t k = 0; k < n; ++k) y[i] += a[i * n + k] * x[k];
  }
}

}  // namespace

void associative(const MatVec& p, Context&) { multiply(p.a.data(), p.x.data(), p.y.data(), p.x.size()); }

}  // namespace fathom::lab::autovectorization
