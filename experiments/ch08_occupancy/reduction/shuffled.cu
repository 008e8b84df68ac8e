// out = in(0) + ... + in(n - 1)                           n fp32
//
// bytes   4 n, read once
// flops   n
// limit   DRAM bandwidth, read only. H200: n = 268435456 is 1.07 GB, 0.236 ms at 4.55 TB/s
// idea    lanes of a warp add each other's registers: five shuffles in place of five steps through shared
//         memory, and a single barrier for the block
#include <algorithm>

#include "block_sum.cuh"
#include "cuda/check.h"
#include "total.h"

namespace fathom::lab::reduction {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* in, int n, float* out) {
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  const float sum = block_sum<kThreads>(i < n ? in[i] : 0);
  if (t == 0) out[blockIdx.x] = sum;
}

}  // namespace

void shuffled(const Total& p, StreamRef stream) {
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  const float* in = p.in.data();
  float* partial  = p.partial.data();
  int n           = static_cast<int>(p.in.size());
  // Each pass adds up the sums of the previous one. For n = 0 one block writes the sum 0.
  for (unsigned blocks = 0; blocks != 1;) {
    blocks     = std::max(1u, blocks_for(n, kThreads));
    float* out = blocks == 1 ? p.out.data() : partial;
    sum_kernel<<<blocks, kThreads, 0, stream>>>(in, n, out);
    FATHOM_LAUNCHED();
    in = out;
    n  = static_cast<int>(blocks);
    partial += blocks;
  }
}

}  // namespace fathom::lab::reduction
