// out(i) = in(i)                       n fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: 2^28 floats move 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    baseline: every thread copies `stride` floats that follow each other. At any moment the lanes of
//         a warp are `stride` floats apart: from 8 on each request takes 32 sectors for 128 bytes. Reads
//         find the rest of a sector in L1 when they come back for it; writes go to L2 four bytes at a time
#include "copy.h"
#include "cuda/check.h"

namespace fathom::lab::copy_coalesced {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* __restrict__ in, float* __restrict__ out, int64_t n, int stride) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * stride;  // of this block's run
#pragma unroll 4
  for (int k = 0; k < stride; ++k) {
    const int64_t i = first + threadIdx.x * stride + k;
    if (i < n) out[i] = in[i];
  }
}

}  // namespace

void strided(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.extent(0);
  FATHOM_EXPECT(p.stride >= 1 && p.stride <= 1024, "a block's run is counted in 32 bits");
  if (n == 0) return;
  const int stride = static_cast<int>(p.stride);
  copy_kernel<<<blocks_for(n, kThreads * stride), kThreads, 0, stream>>>(p.in.data(), p.out.data(), n,
                                                                         stride);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::copy_coalesced
