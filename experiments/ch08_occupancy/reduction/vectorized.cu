// out = in(0) + ... + in(n - 1)                           n fp32
//
// bytes   4 n, read once
// flops   n
// limit   DRAM bandwidth, read only. H200: n = 268435456 is 1.07 GB, 0.236 ms at 4.55 TB/s
// idea    16-byte loads, five of a thread in flight at a time, and blocks that end after 64 KiB:
//         a multiprocessor that is ahead gets the next one. The second pass, one block, adds up 16384
//         sums.
#include <algorithm>

#include "block_sum.cuh"
#include "cuda/check.h"
#include "stripe.cuh"
#include "total.h"

namespace fathom::lab::reduction {
namespace {

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* in, int n, float* out) {
  float sum = stripe_sum(in, n, blockIdx.x);
  if (blockIdx.x == 0) sum += rest_sum(in, n);
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

void vectorized(const Total& p, StreamRef stream) {
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  const float* in = p.in.data();
  float* partial  = p.partial.data();
  int n           = static_cast<int>(p.in.size());
  // Each pass adds up the sums of the previous one. For n = 0 one block writes the sum 0.
  for (unsigned blocks = 0; blocks != 1;) {
    blocks     = std::max(1u, blocks_for(n / 4, kVectors));
    float* out = blocks == 1 ? p.out.data() : partial;
    sum_kernel<<<blocks, kThreads, 0, stream>>>(in, n, out);
    FATHOM_LAUNCHED();
    in = out;
    n  = static_cast<int>(blocks);
    partial += (blocks + 3) / 4 * 4;  // 16-byte loads again
  }
}

}  // namespace fathom::lab::reduction
