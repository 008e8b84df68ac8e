// y = x * weight / rms(x)                    T x D, bf16, computed in fp32
//
// bytes   4 T D    but 6 T D move: x is read by both kernels
// flops   4 T D
// limit   DRAM bandwidth
// idea    baseline: the definition, a reduction and then a map, both coalesced, 16 bytes a load
#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_gpu {
namespace {

using namespace rows;

constexpr int kThreads = 256;

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_scale_kernel(View<const bf16, 2> x, float epsilon, View<float, 1> scale) {
  __shared__ Partial<kThreads> partial;
  const int dim   = static_cast<int>(x.extent(1));
  const bf16* row = x.data() + blockIdx.x * x.stride(0);
  float squares   = 0;
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    const Elements<kWidth> v = load<kWidth>(row + d);
    for (const float e : v.at) squares += e * e;
  }
  squares = over_row(squares, Plus{}, partial);
  if (threadIdx.x == 0) scale(blockIdx.x) = rsqrtf(squares / static_cast<float>(dim) + epsilon);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(View<const bf16, 2> x, View<const bf16, 1> weight, View<const float, 1> scale,
                      View<bf16, 2> y) {
  const int dim    = static_cast<int>(x.extent(1));
  const bf16* from = x.data() + blockIdx.x * x.stride(0);
  bf16* to         = y.data() + blockIdx.x * y.stride(0);
  const float s    = scale(blockIdx.x);
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v       = load<kWidth>(from + d);
    const Elements<kWidth> w = load<kWidth>(weight.data() + d);
    for (int e = 0; e < kWidth; ++e) v.at[e] *= s * w.at[e];
    store<kWidth>(to + d, v);
  }
}

template <int kWidth>
void launch(const RmsNorm& p, StreamRef stream) {
  const auto tokens = static_cast<unsigned>(p.x.extent(0));
  row_scale_kernel<kWidth><<<tokens, kThreads, 0, stream>>>(p.x, kEpsilon, p.scale);
  FATHOM_LAUNCHED();
  scale_rows_kernel<kWidth><<<tokens, kThreads, 0, stream>>>(p.x, p.weight, p.scale, p.y);
  FATHOM_LAUNCHED();
}

}  // namespace

void two_kernels(const RmsNorm& p, StreamRef stream) {
  if (p.x.size() == 0) return;
  FATHOM_EXPECT(p.x.extent(0) < (int64_t{1} << 31) && p.x.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  if (in_eights(p.x) && in_eights(p.weight) && in_eights(p.y))
    launch<kEight>(p, stream);
  else
    launch<1>(p, stream);
}

}  // namespace fathom::lab::fused_rmsnorm_gpu
