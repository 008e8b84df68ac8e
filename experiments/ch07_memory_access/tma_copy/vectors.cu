// out(i) = in(i)                             n floats
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: n = 2^28 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    baseline: a warp moves 512 bytes with each instruction, and a thread has four loads in flight
//         before its first store
#include "copy.h"
#include "cuda/check.h"

namespace fathom::lab::tma_copy {
namespace {

constexpr int kThreads = 256;
constexpr int kEach    = 4;  // vectors of a thread, kThreads apart

__global__ void __launch_bounds__(kThreads) copy_kernel(const float* in, float* out, int vectors, int rest) {
  const auto* from = reinterpret_cast<const float4*>(in);
  auto* to         = reinterpret_cast<float4*>(out);
  const int first  = blockIdx.x * kThreads * kEach + threadIdx.x;

  float4 v[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (const int i = first + e * kThreads; i < vectors) v[e] = from[i];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (const int i = first + e * kThreads; i < vectors) to[i] = v[e];

  // The up to three floats behind the last vector.
  if (blockIdx.x == 0 && threadIdx.x < rest)
    out[4 * int64_t{vectors} + threadIdx.x] = in[4 * int64_t{vectors} + threadIdx.x];
}

}  // namespace

void vectors(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.size();
  FATHOM_EXPECT(n / 4 <= INT32_MAX - kThreads * kEach, "the kernel counts vectors in 32 bits");
  if (n == 0) return;
  const unsigned grid = blocks_for(n / 4 + 1, kThreads * kEach);
  copy_kernel<<<grid, kThreads, 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n / 4),
                                             static_cast<int>(n % 4));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_copy
