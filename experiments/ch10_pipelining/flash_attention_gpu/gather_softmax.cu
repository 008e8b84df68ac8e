// The kernels between the products of scores_in_memory.
//
// bytes   gather: 2048 a token, read and written. softmax: 4 read for each of the 8 T^2 scores that is in
//         reach, 2 written for each
// limit   DRAM bandwidth: 8 heads' scores of 2048 tokens are 134 MB, more than L2 holds
// idea    softmax: a CTA for each row, whose 2048 scores stay in registers, 8 a thread
#include <cuda_bf16.h>

#include <cmath>

#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "gather_softmax.h"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kThreads   = 256;
constexpr int kQuads     = static_cast<int>(kMaxScoredTokens) / (4 * kThreads);  // float4 of scores a thread
constexpr float kLog2E   = 1.44269504f;
constexpr int kRowPieces = kHeadDim * 2 / 16;

// A thread copies 16 bytes of a key and of its value. Grid: (pieces of a head, kKvHeads).
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ PromptAttention p, View<bf16, 4> rows) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), position = i / kRowPieces;
  if (position >= p.q.extent(0)) return;
  const int head = static_cast<int>(blockIdx.y), d = i % kRowPieces * 8;
  const bf16* keys =
      p.kv().keys(p.pages(0, position / kPage), head) + kernels::Bf16KvPages::at(position % kPage, d);
  *reinterpret_cast<uint4*>(&rows(0, head, position, d)) = *reinterpret_cast<const uint4*>(keys);
  *reinterpret_cast<uint4*>(&rows(1, head, position, d)) =
      *reinterpret_cast<const uint4*>(keys + kernels::Bf16KvPages::kElements);
}

// Reduces over the CTA; `warp_values` has one place for each warp.
template <class Op>
__device__ float block_reduce(float x, Op op, float (&warp_values)[kThreads / 32]) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = op(x, __shfl_xor_sync(~0u, x, other));
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = x;
  __syncthreads();  // warp_values is complete
  x = warp_values[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) x = op(x, warp_values[w]);
  return x;
}

// Grid: (T, kGroup).
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const __grid_constant__ PromptAttention p, int first_head) {
  __shared__ float maxima[kThreads / 32], sums[kThreads / 32];
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int stride = static_cast<int>(p.scores.stride(1));
  const int first  = p.window > 0 ? max(0, row - static_cast<int>(p.window) + 1) : 0;
  const auto* from = reinterpret_cast<const float4*>(&p.scores(head, row, 0));
  auto* to         = reinterpret_cast<uint2*>(&p.weights(head, row, 0));
  const auto quad  = [](int i) { return i * kThreads + static_cast<int>(threadIdx.x); };

  float s[kQuads][4];
  const float sink = p.sinks(first_head + head) * kLog2E;
  float max_score  = sink;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int at      = 4 * quad(i);
    const bool read   = at <= row && at + 3 >= first;
    const float4 four = read ? from[quad(i)] : float4{};
    const float x[]   = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e]   = first <= at + e && at + e <= row ? x[e] * (kScale * kLog2E) : -INFINITY;
      max_score = fmaxf(max_score, s[i][e]);
    }
  }
  max_score = block_reduce(
      max_score, [](float a, float b) { return fmaxf(a, b); }, maxima);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kQuads; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e] = ptx::ex2_approx(s[i][e] - max_score);
      sum += s[i][e];
    }
  sum = block_reduce(
      sum, [](float a, float b) { return a + b; }, sums);

  const float inverse = 1 / (sum + ptx::ex2_approx(sink - max_score));
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    if (4 * quad(i) >= stride) continue;
    const __nv_bfloat162 low  = __floats2bfloat162_rn(s[i][0] * inverse, s[i][1] * inverse);
    const __nv_bfloat162 high = __floats2bfloat162_rn(s[i][2] * inverse, s[i][3] * inverse);
    to[quad(i)] = {reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high)};
  }
}

}  // namespace

void gather(const PromptAttention& p, View<bf16, 4> rows, StreamRef stream) {
  const dim3 grid(blocks_for(p.tokens() * kRowPieces, kThreads), kKvHeads);
  gather_kernel<<<grid, kThreads, 0, stream>>>(p, rows);
  FATHOM_LAUNCHED();
}

void softmax(const PromptAttention& p, int64_t kv_head, StreamRef stream) {
  const dim3 grid(static_cast<unsigned>(p.tokens()), kGroup);
  softmax_kernel<<<grid, kThreads, 0, stream>>>(p, static_cast<int>(kv_head) * kGroup);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
