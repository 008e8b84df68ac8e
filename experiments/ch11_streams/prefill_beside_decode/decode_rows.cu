// decode(r) = sum_k v(k) u(r, k)        u bf16 [R, K], v bf16, fp32 sums
//
// bytes   2 R K, once; v comes from L1
// flops   2 R K
// limit   DRAM bandwidth. H200: 32768 rows of 4096 are 268 MB, 60 us at 4.5 TB/s
// idea    a warp for a row. A lane loads four vectors of 16 bytes into registers before it uses the first: 2
//         KiB in flight a warp, so that 32 warps, all that confined_decode has on a multiprocessor, keep 64
#include <cuda_bf16.h>

#include <algorithm>

#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "phases.h"

namespace fathom::lab::prefill_beside_decode {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kVectors = 4;  // of a lane, in flight together

__device__ float2 pair(uint32_t two) { return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&two)); }
__device__ float dot(uint32_t a, uint32_t b) {
  const float2 x = pair(a), y = pair(b);
  return x.x * y.x + x.y * y.y;
}
__device__ float dot(uint4 a, uint4 b) {
  return dot(a.x, b.x) + dot(a.y, b.y) + dot(a.z, b.z) + dot(a.w, b.w);
}

__global__ void __launch_bounds__(kThreads)
    decode_kernel(const uint4* u, const uint4* v, float* out, int64_t rows, int vectors) {
  const int lane = threadIdx.x % 32;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < rows;
       row += int64_t{gridDim.x} * kWarps) {
    const uint4* of_row = u + row * vectors;
    float sum           = 0;
    for (int first = lane; first < vectors; first += 32 * kVectors) {
      uint4 loaded[kVectors];
#pragma unroll
      for (int l = 0; l < kVectors; ++l)
        if (const int i = first + 32 * l; i < vectors) loaded[l] = ptx::ld_global_nc_no_allocate(of_row + i);
#pragma unroll
      for (int l = 0; l < kVectors; ++l)
        if (const int i = first + 32 * l; i < vectors) sum += dot(loaded[l], v[i]);
    }
    sum = warp_reduce_sum(sum);
    if (lane == 0) out[row] = sum;
  }
}

}  // namespace

void decode_rows(const Phases& p, int blocks, StreamRef stream) {
  const int64_t rows = p.u.extent(0);
  if (rows == 0) return;
  const unsigned enough = blocks_for(rows, kWarps);
  const unsigned grid   = blocks == 0 ? enough : std::min(enough, static_cast<unsigned>(blocks));
  decode_kernel<<<grid, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(p.u.data()),
                                               reinterpret_cast<const uint4*>(p.v.data()), p.decode.data(),
                                               rows, static_cast<int>(p.u.extent(1) / 8));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::prefill_beside_decode
