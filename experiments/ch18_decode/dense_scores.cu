// gather_pages: to(t, h, j) = the row of position j, in page pages(t, j / 64)
// softmax_rows: weights(r) = softmax(scale scores(r))
//
// bytes   gather: twice the rows, read and written. softmax: 4 read and 2 written for each score
// limit   DRAM bandwidth; a row of scores of 4096 positions is 16 KiB and stays in L1 for its three passes
// idea    gather: a thread for 16 bytes. softmax: a CTA for each row
#include <cuda_bf16.h>

#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "experiments/ch18_decode/dense_scores.h"

namespace fathom::lab::dense_scores {
namespace {

constexpr int kThreads = 256, kPage = 64;
constexpr float kLog2E = 1.44269504f;

// Grid: (blocks of pieces of a sequence and head, heads, sequences).
__global__ void __launch_bounds__(kThreads)
    gather_kernel(View<const bf16, 4> from, View<const int32_t, 2> pages, int context, View<bf16, 4> to) {
  const int row_pieces = static_cast<int>(from.extent(3)) / 8;
  const int i          = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int j = i / row_pieces, d = i % row_pieces * 8, head = blockIdx.y, t = blockIdx.z;
  if (j >= context) return;
  *reinterpret_cast<uint4*>(&to(t, head, j, d)) =
      *reinterpret_cast<const uint4*>(&from(pages(t, j / kPage), head, j % kPage, d));
}

// Over the CTA; `of_warps` has a place for each warp, and all threads have read it before it is used again.
template <class Op>
__device__ float block_reduce(float x, const Op& op, float (&of_warps)[kThreads / 32]) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = op(x, __shfl_xor_sync(~0u, x, other));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();  // of_warps is complete
  x = of_warps[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) x = op(x, of_warps[warp]);
  return x;
}

// Grid: rows.
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(View<const float, 2> scores, int context, float scale, View<bf16, 2> weights) {
  __shared__ float maxima[kThreads / 32], sums[kThreads / 32];
  const float* row = &scores(static_cast<int64_t>(blockIdx.x), 0);
  bf16* to         = &weights(static_cast<int64_t>(blockIdx.x), 0);
  const float log2 = scale * kLog2E;
  float most = -INFINITY, sum = 0;
  for (int j = threadIdx.x; j < context; j += kThreads) most = fmaxf(most, row[j]);
  most = block_reduce(
      most, [](float a, float b) { return fmaxf(a, b); }, maxima);
  for (int j = threadIdx.x; j < context; j += kThreads) sum += ptx::ex2_approx((row[j] - most) * log2);
  sum = block_reduce(
      sum, [](float a, float b) { return a + b; }, sums);
  const float inverse = 1 / sum;
  for (int j = threadIdx.x; j < context; j += kThreads)
    store_bf16(to + j, ptx::ex2_approx((row[j] - most) * log2) * inverse);
}

}  // namespace

void gather_pages(View<const bf16, 4> from, View<const int32_t, 2> pages, int64_t context, View<bf16, 4> to,
                  StreamRef stream) {
  if (context == 0 || to.extent(0) == 0) return;
  FATHOM_EXPECT(from.extent(2) == kPage && from.extent(3) % 8 == 0 && to.extent(0) <= 65535,
                "gather_pages: pages of 64 rows of 16-byte pieces, at most 65535 sequences");
  const dim3 grid(blocks_for(context * from.extent(3) / 8, kThreads), static_cast<unsigned>(from.extent(1)),
                  static_cast<unsigned>(to.extent(0)));
  gather_kernel<<<grid, kThreads, 0, stream>>>(from, pages, static_cast<int>(context), to);
  FATHOM_LAUNCHED();
}

void softmax_rows(View<const float, 2> scores, int64_t context, float scale, View<bf16, 2> weights,
                  StreamRef stream) {
  if (context == 0 || scores.extent(0) == 0) return;
  softmax_kernel<<<static_cast<unsigned>(scores.extent(0)), kThreads, 0, stream>>>(
      scores, static_cast<int>(context), scale, weights);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::dense_scores
