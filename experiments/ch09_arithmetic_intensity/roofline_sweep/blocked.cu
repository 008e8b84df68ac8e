// out = f(f(...f(in))), f(x) = a x + b       n elements, fp32, f applied `fmas` times
//
// bytes   8 n
// flops   2 fmas n  intensity fmas / 4 a byte; the ridge of an H200 is near 17, fmas = 67
// limit   DRAM bandwidth left of the ridge, FMA units right of it
// idea    8 elements a thread. Left of the ridge that is 8 times as much in flight; right of it the three
//         instructions of the loop itself are shared by 64 multiply-adds instead of 16
#include "cuda/check.h"
#include "sweep.h"

namespace fathom::lab::roofline_sweep {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 2;                        // of 4 elements, for a thread
constexpr int kBlock   = kThreads * kVectors * 4;  // elements

__global__ void __launch_bounds__(kThreads) blocked_kernel(const float* in, float* out, int n, int fmas) {
  const int first = blockIdx.x * kBlock;
  if (first + kBlock <= n) {
    const float4* from = reinterpret_cast<const float4*>(in + first) + threadIdx.x;
    float4* to         = reinterpret_cast<float4*>(out + first) + threadIdx.x;
    float x[kVectors][4];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 packed = from[v * kThreads];
      x[v][0] = packed.x, x[v][1] = packed.y, x[v][2] = packed.z, x[v][3] = packed.w;
    }
#pragma unroll 8
    for (int k = 0; k < fmas; ++k)
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[v][e] = fmaf(x[v][e], kFactor, kSummand);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) to[v * kThreads] = {x[v][0], x[v][1], x[v][2], x[v][3]};
    return;
  }
  // The last block, where there is less than a block left.
  for (int i = first + threadIdx.x; i < n; i += kThreads) {
    float x = in[i];
    for (int k = 0; k < fmas; ++k) x = fmaf(x, kFactor, kSummand);
    out[i] = x;
  }
}

}  // namespace

void blocked(const Sweep& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  FATHOM_EXPECT(n < (int64_t{1} << 30), "elements are counted in 31 bits, a block beyond the end too");
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(p.in.data()) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(p.out.data()) % 16 == 0,
                "arrays are moved in vectors of 16 bytes");
  blocked_kernel<<<blocks_for(n, kBlock), kThreads, 0, stream>>>(p.in.data(), p.out.data(),
                                                                 static_cast<int>(n), p.fmas);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::roofline_sweep
