// The kernel between the products of dense_scores.
//
// bytes   4 read for each score that the mask shows, 2 written for each score
// limit   DRAM bandwidth: the scores of 1024 rows of 16384 in 4 heads are 268 MB, more than L2 holds
// idea    a CTA for each row, whose 16384 scores stay in registers, 16 a thread
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "experiments/labs/flexattention/masked_softmax.h"
#include "kernels/attention/attention_scores.h"

namespace fathom::lab::flexattention {
namespace {

constexpr int kThreads = 1024;
constexpr int kQuads   = static_cast<int>(kMostTokens) / (4 * kThreads);  // float4 of scores a thread
constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

// Reduces over the CTA; `warp_values` has one place for each warp.
template <class Op>
__device__ float block_reduce(float x, Op op, float (&warp_values)[kThreads / 32]) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = op(x, __shfl_xor_sync(~0u, x, other));
  if (threadIdx.x % 32 == 0) warp_values[threadIdx.x / 32] = x;
  __syncthreads();  // warp_values is complete
  x = warp_values[threadIdx.x % 32];
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = op(x, __shfl_xor_sync(~0u, x, other));
  return x;
}

// Grid: (rows, kGroup).
template <class Score>
__global__ void __launch_bounds__(kThreads)
    masked_softmax_kernel(const __grid_constant__ PackedDocuments p, int first_row, int first_head,
                          Score score) {
  __shared__ float maxima[kThreads / 32], sums[kThreads / 32];
  const int row = first_row + static_cast<int>(blockIdx.x), head = first_head + static_cast<int>(blockIdx.y);
  const int stride = static_cast<int>(p.scores.stride(1)), begin = p.begin(row);
  const float scale = p.scale();
  const auto* from  = reinterpret_cast<const float4*>(&p.scores(blockIdx.y, blockIdx.x, 0));
  auto* to          = reinterpret_cast<uint2*>(&p.weights(blockIdx.y, blockIdx.x, 0));
  const auto quad   = [](int i) { return i * kThreads + static_cast<int>(threadIdx.x); };

  float s[kQuads][4], highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int at      = 4 * quad(i);
    const bool read   = at <= row && at + 3 >= begin;
    const float4 four = read ? from[quad(i)] : float4{};
    const float x[]   = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e] =
          begin <= at + e && at + e <= row ? kLog2E * score(x[e] * scale, head, row - (at + e)) : -INFINITY;
      highest = fmaxf(highest, s[i][e]);
    }
  }
  highest = block_reduce(
      highest, [](float a, float b) { return fmaxf(a, b); }, maxima);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kQuads; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e] = ptx::ex2_approx(s[i][e] - highest);
      sum += s[i][e];
    }
  sum = block_reduce(
      sum, [](float a, float b) { return a + b; }, sums);

  const float inverse = 1 / sum;
#pragma unroll
  for (int i = 0; i < kQuads; ++i)
    if (4 * quad(i) < stride)
      to[quad(i)] = {pack_bf16x2(s[i][0] * inverse, s[i][1] * inverse),
                     pack_bf16x2(s[i][2] * inverse, s[i][3] * inverse)};
  if (threadIdx.x == 0) p.lse(head, row) = kLn2 * (highest + log2f(sum));
}

}  // namespace

void masked_softmax(const PackedDocuments& p, int64_t first_row, int64_t rows, int64_t kv_head,
                    StreamRef stream) {
  const dim3 grid(static_cast<unsigned>(rows), kGroup);
  const int row = static_cast<int>(first_row), head = static_cast<int>(kv_head) * kGroup;
  if (p.reach < 0)
    masked_softmax_kernel<<<grid, kThreads, 0, stream>>>(p, row, head, kernels::PlainScore{});
  else
    masked_softmax_kernel<<<grid, kThreads, 0, stream>>>(
        p, row, head, kernels::RelativeBias{p.bias.data(), static_cast<int>(p.reach)});
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flexattention
