// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   b comes from memory once, and from L2 once for every kRows rows; out comes n / kDeep times
// flops   2 n^3
// limit   FMA peak in theory; here the two loads and the store that every FMA still needs, now from L1
// idea    two levels of blocks: kDeep x kWide of b stays in L2 while all rows of out pass, and kShallow rows
//         of that in L1 while kRows rows pass
#include <algorithm>
#include <cstring>

#include "matmul.h"

namespace fathom::lab::matmul_cpu {
namespace {

constexpr int64_t kWide    = 256;  // columns: a row of out is 1 KiB
constexpr int64_t kDeep    = 256;  // kDeep x kWide of b: 256 KiB, in L2
constexpr int64_t kShallow = 16;   // kShallow x kWide of b: 16 KiB, in L1
constexpr int64_t kRows    = 64;   // kRows x kWide of out: 64 KiB, in L2

}  // namespace

void tiled(const MatMul& p, Context&) {
  const int64_t n       = p.n;
  const float* a        = p.a.data();
  const float* b        = p.b.data();
  float* __restrict__ c = p.out.data();
  if (n == 0) return;
  std::memset(c, 0, sizeof(float) * n * n);
  for (int64_t j0 = 0; j0 < n; j0 += kWide) {
    const int64_t j1 = std::min(j0 + kWide, n);
    for (int64_t k0 = 0; k0 < n; k0 += kDeep)
      for (int64_t i0 = 0; i0 < n; i0 += kRows)
        for (int64_t l0 = k0; l0 < std::min(k0 + kDeep, n); l0 += kShallow)
          for (int64_t i = i0; i < std::min(i0 + kRows, n); ++i)
            for (int64_t k = l0; k < std::min({l0 + kShallow, k0 + kDeep, n}); ++k) {
              const float scale = a[i * n + k];
              for (int64_t j = j0; j < j1; ++j) c[i * n + j] += scale * b[k * n + j];
            }
  }
}

}  // namespace fathom::lab::matmul_cpu
