// out(i) = table(code(i))                    n codes of 4 bytes, fp32
//
// bytes   8 n      4 n read + 4 n written; the table, 64 KiB, is read once by each block, from L2
// flops   0
// limit   DRAM bandwidth. H200: n = 67108864 moves 537 MB, 0.13 ms at 4 TB/s
// idea    24 resident warps as at first, but every thread fetches two times four codes with 16-byte
//         loads: eight times the bytes in flight at the same occupancy (V. Volkov, Better Performance at
//         Lower Occupancy, GTC 2010)
#include "experiments/ch08_occupancy/resident_blocks.cuh"
#include "lookup.h"

namespace fathom::lab::occupancy {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads   = 2;  // of 16 bytes, in flight together

__device__ float4 look_up(const float* values, int4 codes) {
  return {values[codes.x], values[codes.y], values[codes.z], values[codes.w]};
}

__global__ void __launch_bounds__(kThreads)
    lookup_kernel(const int* code, const float* table, float* out, int n) {
  extern __shared__ float4 entries[];
  for (int e = threadIdx.x; e < kEntries / 4; e += kThreads)
    entries[e] = reinterpret_cast<const float4*>(table)[e];
  __syncthreads();  // the table is complete before any thread reads it

  const float* values    = reinterpret_cast<const float*>(entries);
  const int4* codes      = reinterpret_cast<const int4*>(code);
  float4* outs           = reinterpret_cast<float4*>(out);
  const int vectors      = n / 4;
  constexpr int kOfBlock = kLoads * kThreads;  // vectors
  for (int first = blockIdx.x * kOfBlock; first < vectors; first += gridDim.x * kOfBlock) {
    int4 c[kLoads];
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int v = first + l * kThreads + threadIdx.x;
      c[l]        = v < vectors ? codes[v] : int4{};
    }
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int v = first + l * kThreads + threadIdx.x;
      if (v < vectors) outs[v] = look_up(values, c[l]);
    }
  }
  const int i = vectors * 4 + threadIdx.x;  // up to three codes are left
  if (blockIdx.x == 0 && i < n) out[i] = values[code[i]];
}

}  // namespace

void vectorized(const Lookup& p, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run to twice the number of elements");
  const int blocks = resident_blocks<lookup_kernel>(kThreads, kSharedMemory);
  lookup_kernel<<<blocks, kThreads, kSharedMemory, stream>>>(p.code.data(), p.table.data(), p.out.data(),
                                                             static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::occupancy
