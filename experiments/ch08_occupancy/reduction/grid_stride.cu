// out = in(0) + ... + in(n - 1)                           n fp32
//
// bytes   4 n, read once
// flops   n
// limit   DRAM bandwidth, read only. H200: n = 268435456 is 1.07 GB, 0.236 ms at 4.55 TB/s
// idea    no more blocks than are resident at once; each thread walks through the array and adds to four
//         sums of its own. Four loads are in flight in a thread, and a block's tree and its end are paid
//         once, not for every 256 elements.
#include <algorithm>

#include "block_sum.cuh"
#include "experiments/ch08_occupancy/resident_blocks.cuh"
#include "total.h"

namespace fathom::lab::reduction {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads   = 4;  // of a thread, in flight together

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* in, int n, float* out) {
  const int t = threadIdx.x, threads = gridDim.x * kThreads;
  int i              = blockIdx.x * kThreads + t;
  float sums[kLoads] = {};
  for (; i + (kLoads - 1) * threads < n; i += kLoads * threads)
#pragma unroll
    for (int l = 0; l < kLoads; ++l) sums[l] += in[i + l * threads];
  for (; i < n; i += threads) sums[0] += in[i];
  const float sum = block_sum<kThreads>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (t == 0) out[blockIdx.x] = sum;
}

}  // namespace

void grid_stride(const Total& p, StreamRef stream) {
  const auto resident = static_cast<unsigned>(resident_blocks<sum_kernel>(kThreads));
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  const float* in = p.in.data();
  float* partial  = p.partial.data();
  int n           = static_cast<int>(p.in.size());
  // Each pass adds up the sums of the previous one. For n = 0 one block writes the sum 0.
  for (unsigned blocks = 0; blocks != 1;) {
    // The sums of all resident blocks are few enough for one.
    blocks     = in == p.in.data() ? std::clamp(blocks_for(n, kThreads), 1u, resident) : 1;
    float* out = blocks == 1 ? p.out.data() : partial;
    sum_kernel<<<blocks, kThreads, 0, stream>>>(in, n, out);
    FATHOM_LAUNCHED();
    in = out;
    n  = static_cast<int>(blocks);
  }
}

}  // namespace fathom::lab::reduction
