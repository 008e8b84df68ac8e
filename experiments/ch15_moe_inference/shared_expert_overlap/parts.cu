// shared = W2 (silu(gate) linear),  (gate, linear) = W1 x          T tokens, bf16
//
// bytes   6 width^2 of weights, and 12 T width
// flops   6 T width^2
// limit   many tokens: the tensor cores; few: DRAM bandwidth
// idea    the op gemm_bf16, twice, and a kernel that gates between them. The routed experts are the engine's
// ops
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "experiments/ch15_moe_inference/grouped_experts_gpu/sorted_rows.h"
#include "kernels/gemm/gemm_bf16.h"
#include "kernels/moe/experts_grouped_gemm.h"
#include "moe_layer.h"

namespace fathom::lab::shared_expert_overlap {
namespace {

constexpr int kThreads = 256;

__device__ float silu(float x) { return __fdividef(x, 1 + __expf(-x)); }
__device__ float2 two(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
__device__ uint32_t gated_two(uint32_t gates, uint32_t linear) {
  const float2 g = two(gates), l = two(linear);
  return pack_bf16x2(silu(g.x) * l.x, silu(g.y) * l.y);
}

// A thread has eight units. vectors: of a row of `gated`.
__global__ void __launch_bounds__(kThreads)
    gate_kernel(const uint4* __restrict__ up, uint4* __restrict__ gated, int vectors, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / vectors, at = row * 2 * vectors + i % vectors;
  const uint4 g = up[at], l = up[at + vectors];
  gated[i] = {gated_two(g.x, l.x), gated_two(g.y, l.y), gated_two(g.z, l.z), gated_two(g.w, l.w)};
}

}  // namespace

void routed_experts(const MoeLayer& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows rows = grouped_experts_gpu::sort_and_gather(p, stream);
  kernels::experts_up_grouped_gemm(p.sorted, rows, p.up.packed, mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
  kernels::experts_down_grouped_gemm(p.a, rows, p.weights, p.down.packed, p.slots, stream);
}

void shared_expert(const MoeLayer& p, StreamRef stream) {
  if (p.shared.size() == 0) return;
  kernels::gemm_bf16(p.x, p.w1, p.shared_up, stream);
  const int64_t count = p.shared_gated.size() / 8;
  gate_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(p.shared_up.data()), reinterpret_cast<uint4*>(p.shared_gated.data()),
      static_cast<int>(p.shared_gated.extent(1) / 8), count);
  FATHOM_LAUNCHED();
  kernels::gemm_bf16(p.shared_gated, p.w2, p.shared, stream);
}

}  // namespace fathom::lab::shared_expert_overlap
