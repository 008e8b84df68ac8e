// out(i) = in(i)                       n fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: 2^28 floats move 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    neighbouring threads copy neighbouring floats, and a block walks through its run together: a
//         request is four whole sectors, one line, and nothing is fetched twice
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
    const int64_t i = first + k * kThreads + threadIdx.x;
    if (i < n) out[i] = in[i];
  }
}

}  // namespace

void coalesced(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.extent(0);
  FATHOM_EXPECT(p.stride >= 1 && p.stride <= 1024, "a block's run is counted in 32 bits");
  if (n == 0) return;
  const int stride = static_cast<int>(p.stride);
  copy_kernel<<<blocks_for(n, kThreads * stride), kThreads, 0, stream>>>(p.in.data(), p.out.data(), n,
                                                                         stride);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::copy_coalesced
