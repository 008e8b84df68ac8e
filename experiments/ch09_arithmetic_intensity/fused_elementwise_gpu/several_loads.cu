// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      and 8 n move
// flops   14 n     1.75 a byte
// limit   DRAM bandwidth. H200: n = 2^27 moves 1.07 GB, 270 us at the 3.98 TB/s of a copy
// idea    a thread loads four vectors before it works on the first: a quarter of the blocks, each with four
//         times as much in flight. The loads do not allocate in L1, where no line is reused
#include "elementwise.h"
#include "map.cuh"

namespace fathom::lab::fused_elementwise_gpu {
namespace {

constexpr int kPerThread = 4;                      // vectors
constexpr int kPerBlock  = kThreads * kPerThread;  // vectors: 16 KiB

__device__ float4 load_once(const float4* from) {
  float4 v;
  asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "l"(from));
  return v;
}

__global__ void __launch_bounds__(kThreads) several_loads_kernel(const float* from, float* to, int n) {
  const RootOfSine f;
  const int first = blockIdx.x * kPerBlock + threadIdx.x, vectors = n / 4;
  const float4* x = reinterpret_cast<const float4*>(from) + first;
  float4* out     = reinterpret_cast<float4*>(to) + first;
  if (blockIdx.x * kPerBlock + kPerBlock <= vectors) {
    float4 v[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) v[k] = load_once(x + k * kThreads);
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) out[k * kThreads] = {f(v[k].x), f(v[k].y), f(v[k].z), f(v[k].w)};
    return;
  }
  // The last block has what is left: fewer vectors than a block takes, then fewer elements than a vector.
  for (int i = blockIdx.x * kPerBlock * 4 + threadIdx.x; i < n; i += kThreads) to[i] = f(from[i]);
}

}  // namespace

void several_loads(const Elementwise& p, StreamRef stream) {
  const int64_t n = p.x.size();
  if (n == 0) return;
  FATHOM_EXPECT(n < (int64_t{1} << 30), "elements are counted in 31 bits, a block beyond the end too");
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(p.x.data()) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(p.out.data()) % 16 == 0,
                "arrays are moved in vectors of 16 bytes");
  several_loads_kernel<<<blocks_for(n, kPerBlock * 4), kThreads, 0, stream>>>(p.x.data(), p.out.data(),
                                                                              static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::fused_elementwise_gpu
