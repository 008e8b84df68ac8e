// out(i) = mean of P_kind(i) over 0 .. load(i)          n samples of 4 materials, fp32
//
// flops   1024 n    32 nodes x (a polynomial of degree 15, its argument, the sum)
// bytes   9 n
// limit   FMA peak. A node is 15 FMAs, a product and two sums: 32 flops in 18 instructions, 89 % of the peak
// idea    no branch: the four functions differ in their coefficients only, so the material becomes an
//         address. A thread fetches its 16 coefficients from shared memory, and all lanes run one code
#include "cuda/check.h"
#include "material.cuh"

namespace fathom::lab::divergence {
namespace {

constexpr int kThreads  = 256;
constexpr int kQuarters = (kDegree + 1) / 4;

__global__ void __launch_bounds__(kThreads)
    response_kernel(const float* load, const uint8_t* kind, float* out, int n) {
  // Quarters outside, so that the same quarter of all four materials lies in different banks.
  __shared__ float4 quarters[kQuarters][kKinds];

  for (int e = threadIdx.x; e < kQuarters * kKinds; e += kThreads) {
    const int k = 4 * (e / kKinds), of = e % kKinds;
    quarters[e / kKinds][of] = make_float4(coefficient(of, k), coefficient(of, k + 1), coefficient(of, k + 2),
                                           coefficient(of, k + 3));
  }
  __syncthreads();  // the table is complete before any thread reads

  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  float mine[kDegree + 1];
  const int of = kind[i];
  for (int q = 0; q < kQuarters; ++q) {
    const float4 four = quarters[q][of];
    mine[4 * q]       = four.x;
    mine[4 * q + 1]   = four.y;
    mine[4 * q + 2]   = four.z;
    mine[4 * q + 3]   = four.w;
  }
  out[i] = mean_response(load[i], [&](int k) { return mine[k]; });
}

}  // namespace

void table(const Responses& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "samples are counted in 32 bits");
  if (n == 0) return;
  response_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.load.data(), p.kind.data(),
                                                                    p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::divergence
