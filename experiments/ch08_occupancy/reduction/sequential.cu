// out = in(0) + ... + in(n - 1)                           n fp32
//
// bytes   4 n, read once
// flops   n
// limit   DRAM bandwidth, read only. H200: n = 268435456 is 1.07 GB, 0.236 ms at 4.55 TB/s
// idea    the tree reversed: the upper half is added to the lower half, so that the adding threads are
//         neighbours, whole warps become idle, and there are no bank conflicts. Unrolled, and without block
//         barriers once a single warp is left (M. Harris, Optimizing Parallel Reduction in CUDA, 2007).
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
#pragma unroll
  for (int half = kThreads / 2; half >= 32; half /= 2) {
    if (t < half) sums[t] += sums[t + half];
    __syncthreads();  // the next step reads what others have just added
  }
  if (t >= 32) return;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    if (t < half) sums[t] += sums[t + half];
    __syncwarp();  // the same, for the one warp that is left
  }
  if (t == 0) out[blockIdx.x] = sums[0];
}

}  // namespace

void sequential(const Total& p, StreamRef stream) {
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
