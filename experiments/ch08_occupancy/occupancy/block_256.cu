// out(i) = table(code(i))                    n codes of 4 bytes, fp32
//
// bytes   8 n      4 n read + 4 n written; the table, 64 KiB, is read once by each block, from L2
// flops   0
// limit   DRAM bandwidth. H200: n = 67108864 moves 537 MB, 0.13 ms at 4 TB/s
// idea    baseline: blocks of 256 threads, as usual. Each has its own table; 3 tables fit into the 228 KiB of
//         a multiprocessor, so 24 of its 64 warps are resident, with one load each.
#include "experiments/ch08_occupancy/resident_blocks.cuh"
#include "lookup.h"

namespace fathom::lab::occupancy {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    lookup_kernel(const int* code, const float* table, float* out, int n) {
  extern __shared__ float4 entries[];
  for (int e = threadIdx.x; e < kEntries / 4; e += kThreads)
    entries[e] = reinterpret_cast<const float4*>(table)[e];
  __syncthreads();  // the table is complete before any thread reads it

  const float* values = reinterpret_cast<const float*>(entries);
  // The compiler must assume that out overlaps code, so it cannot move a load above an earlier store.
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    out[i] = values[code[i]];
}

}  // namespace

void block_256(const Lookup& p, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run to twice the number of elements");
  const int blocks = resident_blocks<lookup_kernel>(kThreads, kSharedMemory);
  lookup_kernel<<<blocks, kThreads, kSharedMemory, stream>>>(p.code.data(), p.table.data(), p.out.data(),
                                                             static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::occupancy
