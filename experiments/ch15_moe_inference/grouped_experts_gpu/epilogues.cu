// a = gated(products + b1); slots = weight (products + b2)          n rows of one expert
//
// bytes   gate: 10 width a row; weigh: 8 width a row. Their input was just written: most of it is in L2
// limit   L2 bandwidth
// idea    a thread has two sums, and calls the epilogues of the engine's kernels
//         (kernels/moe/swiglu_epilogue.cuh, kernels/moe/weighted_epilogue.cuh)
#include "epilogues.h"

#include "cuda/check.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"

namespace fathom::lab::grouped_experts_gpu {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gate_kernel(const float2* __restrict__ products, int units, kernels::SwigluEpilogue store) {
  const int u = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y;
  if (u >= units) return;
  const float2 sums = products[int64_t{row} * units + u];
  store(u / 8 * 16 + u % 8, row, sums.x, sums.y);
}

__global__ void __launch_bounds__(kThreads)
    weigh_kernel(const float* __restrict__ products, const int32_t* __restrict__ slot,
                 const float* __restrict__ weights, int width, kernels::WeightedEpilogue store) {
  const int pair = blockIdx.x * kThreads + threadIdx.x, p = pair / 8 * 16 + pair % 8;
  if (2 * pair >= width) return;
  const float* row = products + int64_t{blockIdx.y} * width;
  const int to     = slot[blockIdx.y];
  store(p, to, row[p], row[p + 8], weights[to]);
}

dim3 grid_for(int64_t threads, int64_t rows) {
  FATHOM_EXPECT(rows < 65536, "a CTA has one row, and the grid at most 65,535");
  return dim3(blocks_for(threads, kThreads), static_cast<unsigned>(rows));
}

}  // namespace

void gate(View<const float, 2> products, const float* bias, View<bf16, 2> a, StreamRef stream) {
  if (a.size() == 0) return;
  gate_kernel<<<grid_for(a.extent(1), a.extent(0)), kThreads, 0, stream>>>(
      reinterpret_cast<const float2*>(products.data()), static_cast<int>(a.extent(1)),
      {.a            = a.data(),
       .units        = a.extent(1),
       .bias         = bias,
       .output_scale = 1,
       .limit        = mxfp4::kLimit,
       .alpha        = mxfp4::kAlpha});
  FATHOM_LAUNCHED();
}

void weigh(View<const float, 2> products, const float* bias, View<const int32_t, 1> slot,
           View<const float, 2> weights, View<float, 2> slots, StreamRef stream) {
  const int64_t width = products.extent(1);
  if (products.size() == 0) return;
  weigh_kernel<<<grid_for(width / 2, products.extent(0)), kThreads, 0, stream>>>(
      products.data(), slot.data(), weights.data(), static_cast<int>(width),
      {.y = slots.data(), .hidden = width, .bias = bias, .output_scale = 1});
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::grouped_experts_gpu
