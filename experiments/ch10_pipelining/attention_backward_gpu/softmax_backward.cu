// p = exp(scale s - lse), ds = p (dp - d_out . out)          of one query head (softmax_backward.h)
//
// bytes   12 for each of the T^2 scores: 8 read, 4 written; 4 where the mask hides the key
// limit   DRAM bandwidth. H200: T = 8192, causal, moves 0.54 GB, 0.13 ms at 4.1 TB/s
// idea    a CTA has a row, whose D products of d_out . out it sums first, and moves vectors of 4
#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "softmax_backward.h"

namespace fathom::lab::attention_backward_gpu {
namespace {

constexpr int kThreads = 256;
constexpr float kLog2E = 1.44269504f;

// Grid: T.
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(const __grid_constant__ Gradients p, int head) {
  __shared__ float row_delta;
  const int row = static_cast<int>(blockIdx.x), tokens = static_cast<int>(p.tokens());
  if (threadIdx.x < 32) {
    float sum = 0;
    for (int d = static_cast<int>(threadIdx.x); d < p.head_dim(); d += 32)
      sum += static_cast<float>(p.out(row, head, d)) * static_cast<float>(p.d_out(row, head, d));
    sum = warp_reduce_sum(sum);
    if (threadIdx.x == 0) row_delta = sum;
  }
  __syncthreads();  // row_delta is written
  const float delta = row_delta, lse = p.lse(head, row) * kLog2E, scale = p.scale * kLog2E;
  const int end = p.causal ? row + 1 : tokens;  // of the keys in reach

  const auto* scores    = reinterpret_cast<const float4*>(&p.scores(row, 0));
  const auto* d_weights = reinterpret_cast<const float4*>(&p.d_weights(row, 0));
  auto* weights         = reinterpret_cast<uint2*>(&p.weights(row, 0));
  auto* d_scores        = reinterpret_cast<uint2*>(&p.d_scores(row, 0));
  for (int quad = static_cast<int>(threadIdx.x); 4 * quad < p.scores.extent(1); quad += kThreads) {
    float w[4] = {}, ds[4] = {};
    if (4 * quad < end) {
      const float4 s4 = scores[quad], dp4 = d_weights[quad];
      const float s[] = {s4.x, s4.y, s4.z, s4.w}, dp[] = {dp4.x, dp4.y, dp4.z, dp4.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (4 * quad + e >= end) continue;
        w[e]  = ptx::ex2_approx(s[e] * scale - lse);
        ds[e] = w[e] * (dp[e] - delta);
      }
    }
    weights[quad]  = {pack_bf16x2(w[0], w[1]), pack_bf16x2(w[2], w[3])};
    d_scores[quad] = {pack_bf16x2(ds[0], ds[1]), pack_bf16x2(ds[2], ds[3])};
  }
}

// Grid: T.
__global__ void __launch_bounds__(kThreads)
    round_group_sums_kernel(const __grid_constant__ Gradients p, int kv_head) {
  const int row = static_cast<int>(blockIdx.x), d = static_cast<int>(threadIdx.x);
  if (d >= p.head_dim()) return;
  p.dk(row, kv_head, d) = bf16(p.dk_sums(row, d));
  p.dv(row, kv_head, d) = bf16(p.dv_sums(row, d));
}

}  // namespace

void softmax_backward(const Gradients& p, int64_t head, StreamRef stream) {
  softmax_backward_kernel<<<static_cast<unsigned>(p.tokens()), kThreads, 0, stream>>>(p,
                                                                                      static_cast<int>(head));
  FATHOM_LAUNCHED();
}

void round_group_sums(const Gradients& p, int64_t kv_head, StreamRef stream) {
  FATHOM_EXPECT(p.head_dim() <= kThreads, "a thread has a dimension");
  round_group_sums_kernel<<<static_cast<unsigned>(p.tokens()), kThreads, 0, stream>>>(
      p, static_cast<int>(kv_head));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::attention_backward_gpu
