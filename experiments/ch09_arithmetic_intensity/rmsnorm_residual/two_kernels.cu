// sum = x + residual; y = sum * weight / rms(sum)       T x D, bf16, computed in fp32
//
// bytes   8 T D    but 10 T D move: the norm reads back what the addition wrote
// flops   5 T D
// limit   DRAM bandwidth
// idea    baseline: two operations, two kernels, each at the speed of memory
#include "cuda/check.h"
#include "experiments/ch09_arithmetic_intensity/fused_rmsnorm_gpu/registers.cuh"
#include "experiments/rows.cuh"
#include "residual.h"

namespace fathom::lab::rmsnorm_residual {
namespace {

using namespace rows;

constexpr int kThreads   = 256;
constexpr int kPerThread = 2;  // vectors of each input
constexpr int kPerBlock  = kThreads * kPerThread;

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const bf16* x, const bf16* residual, bf16* sum, int vectors) {
  const int first = blockIdx.x * kPerBlock + threadIdx.x;
  Elements<kWidth> a[kPerThread], b[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int i = first + k * kThreads;
    if (i >= vectors) continue;
    a[k] = load<kWidth>(x + int64_t{i} * kWidth);
    b[k] = load<kWidth>(residual + int64_t{i} * kWidth);
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int i = first + k * kThreads;
    if (i >= vectors) continue;
    for (int e = 0; e < kWidth; ++e) a[k].at[e] += b[k].at[e];
    store<kWidth>(sum + int64_t{i} * kWidth, a[k]);
  }
}

template <int kWidth>
void add(const Residual& p, StreamRef stream) {
  const auto vectors = static_cast<int>(p.x.size() / kWidth);
  add_kernel<kWidth><<<blocks_for(vectors, kPerBlock), kThreads, 0, stream>>>(p.x.data(), p.residual.data(),
                                                                              p.sum.data(), vectors);
  FATHOM_LAUNCHED();
}

}  // namespace

void two_kernels(const Residual& p, StreamRef stream) {
  if (p.x.size() == 0) return;
  FATHOM_EXPECT(p.x.contiguous() && p.residual.contiguous() && p.sum.contiguous(),
                "the addition takes the rows of each matrix as one array");
  FATHOM_EXPECT(p.x.size() < (int64_t{1} << 30),
                "elements are counted in 31 bits, a block beyond the end too");
  const bool whole = p.x.size() % kEight == 0 && aligned(p.x.data(), 16) && aligned(p.residual.data(), 16) &&
                     aligned(p.sum.data(), 16);
  whole ? add<kEight>(p, stream) : add<1>(p, stream);
  fused_rmsnorm_gpu::rmsnorm(p.sum, p.weight, kEpsilon, p.y, stream);
}

}  // namespace fathom::lab::rmsnorm_residual
