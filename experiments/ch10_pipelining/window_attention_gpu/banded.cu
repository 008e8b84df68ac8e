// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        the last 128 positions, 64 heads over 8 of 64, bf16
//
// bytes   16384 a token for q and out, 2048 of the cache; its band of 143 positions is read from L2 for every
//         16 tokens
// flops   16384 for each pair of a token and a position in its window
// limit   DRAM bandwidth. H200: 2048 tokens are 38 MB, 8 us at 4.55 TB/s; on the CUDA cores their 4.2 GFLOP
//         take 70 us, and unpacking keys and values in every thread as long again
// idea    baseline: a thread for each row, 16 tokens x 8 heads of a group in a CTA. The band of keys and
//         values that these tokens see lies in shared memory; all lanes read the same position at a time
#include <cmath>

#include "banded.h"
#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "experiments/rows.cuh"

namespace fathom::lab::window_attention_gpu {
namespace {

using flash_attention_gpu::kGroup, flash_attention_gpu::kHeadDim, flash_attention_gpu::kKvHeads,
    flash_attention_gpu::kPage, flash_attention_gpu::kScale, flash_attention_gpu::PromptAttention;
using kernels::Bf16KvPages;

constexpr int kTokens = 16, kThreads = kTokens * kGroup, kTokensOfWarp = 32 / kGroup;
constexpr int kBand    = kTokens + kMaxWindow - 1;  // positions that the tokens of a CTA see
constexpr int kPieces  = kHeadDim / rows::kEight;   // 16 bytes each
constexpr float kLog2E = 1.44269504f;

// Grid: (ceil(T / kTokens), kKvHeads).
__global__ void __launch_bounds__(kThreads) banded_kernel(const __grid_constant__ PromptAttention p) {
  __shared__ uint4 keys[kBand][kPieces], values[kBand][kPieces];
  const int tokens = static_cast<int>(p.q.extent(0)), window = static_cast<int>(p.window);
  const int first_token = static_cast<int>(blockIdx.x) * kTokens, kv_head = static_cast<int>(blockIdx.y);
  const int first = max(0, first_token - window + 1), end = min(first_token + kTokens, tokens);
  for (int i = threadIdx.x; i < (end - first) * kPieces; i += kThreads) {
    const int position = first + i / kPieces, piece = i % kPieces;
    const bf16* key = p.kv().keys(p.pages(0, position / kPage), kv_head) +
                      Bf16KvPages::at(position % kPage, piece * rows::kEight);
    keys[i / kPieces][piece]   = *reinterpret_cast<const uint4*>(key);
    values[i / kPieces][piece] = *reinterpret_cast<const uint4*>(key + Bf16KvPages::kElements);
  }
  __syncthreads();  // the band is there

  const int warp_token = first_token + static_cast<int>(threadIdx.x) / 32 * kTokensOfWarp;
  const int token      = first_token + static_cast<int>(threadIdx.x) / kGroup;
  const int head       = kv_head * kGroup + static_cast<int>(threadIdx.x) % kGroup;
  if (token >= tokens) return;

  // Scores are to base 2. The sink is the row's first score, and has no value.
  float q[kHeadDim], out[kHeadDim] = {};
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    const auto eight = rows::unpack(rows::eights(&p.q(token, head, 0))[c]);
#pragma unroll
    for (int i = 0; i < rows::kEight; ++i) q[c * rows::kEight + i] = eight.at[i] * (kScale * kLog2E);
  }
  float max_score = p.sinks(head) * kLog2E, sum = 1;
  const int last = min(warp_token + kTokensOfWarp, tokens) - 1;
  for (int position = max(0, warp_token - window + 1); position <= last; ++position) {
    if (position > token || position <= token - window) continue;  // another row's of this warp
    float score = 0;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const auto key = rows::unpack(keys[position - first][c]);
#pragma unroll
      for (int i = 0; i < rows::kEight; ++i) score += q[c * rows::kEight + i] * key.at[i];
    }
    if (score > max_score) {
      const float times = ptx::ex2_approx(max_score - score);
      sum *= times;
#pragma unroll
      for (float& x : out) x *= times;
      max_score = score;
    }
    const float weight = ptx::ex2_approx(score - max_score);
    sum += weight;
#pragma unroll
    for (int c = 0; c < kPieces; ++c) {
      const auto value = rows::unpack(values[position - first][c]);
#pragma unroll
      for (int i = 0; i < rows::kEight; ++i) out[c * rows::kEight + i] += weight * value.at[i];
    }
  }

  auto* to = reinterpret_cast<uint4*>(&p.out(token, head, 0));
#pragma unroll
  for (int c = 0; c < kPieces; ++c) {
    rows::Elements<rows::kEight> eight;
#pragma unroll
    for (int i = 0; i < rows::kEight; ++i) eight.at[i] = out[c * rows::kEight + i] / sum;
    to[c] = rows::pack(eight);
  }
}

}  // namespace

void banded(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.window > 0 && p.window <= kMaxWindow, "banded: the band of a window of 1 to 128 fits");
  banded_kernel<<<dim3(blocks_for(p.tokens(), kTokens), kKvHeads), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::window_attention_gpu
