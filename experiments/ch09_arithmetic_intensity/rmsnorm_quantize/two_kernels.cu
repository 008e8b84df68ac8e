// y = x * weight / rms(x); scale = max|y| / 448; q = y / scale      T x D, bf16 to e4m3, computed in fp32
//
// bytes   3 T D    but 7 T D move: y is written in bf16 and read again
// flops   6 T D
// limit   DRAM bandwidth
// idea    baseline: RMSNorm, then a kernel that quantises rows; its second walk over a row hits L1
#include "cuda/check.h"
#include "experiments/ch09_arithmetic_intensity/fused_rmsnorm_gpu/registers.cuh"
#include "experiments/rows.cuh"
#include "quantize.h"

namespace fathom::lab::rmsnorm_quantize {
namespace {

using namespace rows;

constexpr int kThreads = 256;

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(View<const bf16, 2> y, View<fp8_e4m3, 2> q, View<float, 1> scale) {
  __shared__ Partial<kThreads> partial;
  const int dim    = static_cast<int>(y.extent(1));
  const bf16* from = y.data() + blockIdx.x * y.stride(0);
  fp8_e4m3* to     = q.data() + blockIdx.x * q.stride(0);
  float largest    = 0;
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    const Elements<kWidth> v = load<kWidth>(from + d);
    for (const float e : v.at) largest = fmaxf(largest, fabsf(e));
  }
  const float s = fmaxf(over_row(largest, Larger{}, partial) / kLargest, kSmallestScale);
  if (threadIdx.x == 0) scale(blockIdx.x) = s;
  const float by = 1 / s;
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v = load<kWidth>(from + d);
    for (float& e : v.at) e *= by;
    store<kWidth>(to + d, v);
  }
}

template <int kWidth>
void quantize_rows(const Quantize& p, StreamRef stream) {
  quantize_rows_kernel<kWidth>
      <<<static_cast<unsigned>(p.y.extent(0)), kThreads, 0, stream>>>(p.y, p.q, p.scale);
  FATHOM_LAUNCHED();
}

}  // namespace

void two_kernels(const Quantize& p, StreamRef stream) {
  if (p.x.size() == 0) return;
  fused_rmsnorm_gpu::rmsnorm(p.x, p.weight, kEpsilon, p.y, stream);  // checks the number of rows too
  in_eights(p.y) && in_eights(p.q) ? quantize_rows<kEight>(p, stream) : quantize_rows<1>(p, stream);
}

}  // namespace fathom::lab::rmsnorm_quantize
