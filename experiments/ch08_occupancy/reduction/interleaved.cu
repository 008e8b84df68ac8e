// out = in(0) + ... + in(n - 1)                           n fp32
//
// bytes   4 n, read once
// flops   n
// limit   DRAM bandwidth, read only. H200: n = 268435456 is 1.07 GB, 0.236 ms at 4.55 TB/s
// idea    baseline: the tree of the textbook in shared memory, neighbours first. With every step the
//         threads that still add are half as many and twice as far apart, so that nearly to the end every
//         warp has one.
#include <algorithm>

#include "cuda/check.h"
#include "total.h"

namespace fathom::lab::reduction {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* in, int n, float* out) {
  __shared__ float sums[kThreads];
  const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
  sums[t] = i < n ? in[i] : 0;
  __syncthreads();  // all elements are there
  for (int step = 1; step < kThreads; step *= 2) {
    if (t % (2 * step) == 0) sums[t] += sums[t + step];
    __syncthreads();  // the next step reads what others have just added
  }
  if (t == 0) out[blockIdx.x] = sums[0];
}

}  // namespace

void interleaved(const Total& p, StreamRef stream) {
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
