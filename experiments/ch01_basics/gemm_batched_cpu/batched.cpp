// out[p] = a[p] b[p]          batch products of size x size, fp32
//
// bytes   12 batch size^2   8 read + 4 written for each element
// flops   2 batch size^3
// limit   FMA peak of one core. Zen 3 (2 x 8 FMA a cycle) at 3.2 GHz: 512 products of 32 x 32 are 34 MFLOP,
//         0.33 ms
// idea    one call for the whole batch: all products have one size, so it is checked once, and the loop over
//         the batch runs in code compiled for that size, with rows of out in registers
#include "gemm.h"
#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_cpu {
namespace {

constexpr int64_t kLanes = 8;

using Vector [[gnu::vector_size(4 * kLanes), gnu::aligned(4), gnu::may_alias]] = float;

// kRows rows of out at a time, in 8 registers. Written with vector types: g++ 12 vectorises the plain loop
// only for some sizes.
template <int64_t kSize>
void multiply_batch(const GemmBatched& q) {
  constexpr int64_t kWide = kSize / kLanes, kRows = 8 / kWide;
  const float* a = q.a.data();
  const float* b = q.b.data();
  float* out     = q.out.data();
  for (int64_t p = 0; p < q.batch; ++p, a += kSize * kSize, b += kSize * kSize, out += kSize * kSize)
    for (int64_t i = 0; i < kSize; i += kRows) {
      Vector rows[kRows][kWide] = {};
#pragma GCC unroll 1
      for (int64_t k = 0; k < kSize; ++k) {
        const auto* b_row = reinterpret_cast<const Vector*>(b + k * kSize);
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
          for (int64_t v = 0; v < kWide; ++v) rows[r][v] += a[(i + r) * kSize + k] * b_row[v];
      }
      auto* out_rows = reinterpret_cast<Vector*>(out + i * kSize);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int64_t v = 0; v < kWide; ++v) out_rows[r * kWide + v] = rows[r][v];
    }
}

}  // namespace

void batched(const GemmBatched& q, Context&) {
  switch (q.size) {
    case 8:
      return multiply_batch<8>(q);
    case 16:
      return multiply_batch<16>(q);
    case 32:
      return multiply_batch<32>(q);
  }
  const int64_t n = q.size, step = n * n;  // a size without compiled code of its own
  for (int64_t p = 0; p < q.batch; ++p)
    gemm(n, n, n, q.a.data() + p * step, n, q.b.data() + p * step, n, q.out.data() + p * step, n);
}

}  // namespace fathom::lab::gemm_batched_cpu
