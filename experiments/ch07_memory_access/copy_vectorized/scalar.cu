// out(i) = in(i)                       n fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: 2^28 floats move 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    baseline: a float a thread, coalesced. A multiprocessor's 2,048 threads have 8 KiB in flight; at
//         some 700 ns of latency 132 of them read 1.5 TB/s, whatever the memory could
#include "copy.h"
#include "cuda/check.h"

namespace fathom::lab::copy_vectorized {
namespace {

using Vector           = float;
constexpr int kWidth   = sizeof(Vector) / sizeof(float);
constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
  const int64_t i       = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t vectors = n / kWidth;
  if (i < vectors) {
    reinterpret_cast<Vector*>(out)[i] = reinterpret_cast<const Vector*>(in)[i];
  } else {
    const int64_t j = vectors * kWidth + (i - vectors);  // the rest, where n is no multiple of the width
    if (j < n) out[j] = in[j];
  }
}

}  // namespace

void scalar(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.extent(0);
  if (n == 0) return;
  copy_kernel<<<blocks_for(n / kWidth + n % kWidth, kThreads), kThreads, 0, stream>>>(p.in.data(),
                                                                                      p.out.data(), n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::copy_vectorized
