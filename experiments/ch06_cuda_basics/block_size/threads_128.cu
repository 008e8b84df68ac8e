// out = 3 x + y                       n elements, fp32
//
// bytes   12 n    8 n read + 4 n written
// flops   2 n
// limit   DRAM bandwidth. H200: n = 2^26 moves 805 MB
// idea    four warps: 16 blocks a multiprocessor
#include "cuda/check.h"
#include "triad.h"

namespace fathom::lab::block_size {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) triad_kernel(const float* x, const float* y, float* out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = fmaf(kScale, x[i], y[i]);
}

}  // namespace

void threads_128(const Triad& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "elements are counted in 32 bits");
  if (n == 0) return;
  triad_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.x.data(), p.y.data(), p.out.data(),
                                                                 static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::block_size
