// Between the products of scores_in_memory.
//
// bytes   gather: 2048 a token, read and written. soften: for each of the 8 T^2 scores 4 read, of
//         those in reach, and 2 written
// limit   DRAM bandwidth: 8 heads' scores of 2048 tokens are 134 MB, more than L2 holds
// idea    a block for each row; a row of 2048 scores stays in the registers of its threads, 8 each
#include <cuda_bf16.h>

#include <cmath>

#include "core/cuda.h"
#include "core/ptx.cuh"
#include "steps.h"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kThreads   = 256;
constexpr int kQuads     = static_cast<int>(kMostScored) / (4 * kThreads);  // of scores, of a thread
constexpr float kLog2E   = 1.44269504f;
constexpr int kRowPieces = kHeadDim * 2 / 16;

// A thread for each piece of 16 bytes of a key and of a value. Grid: (pieces of a head, kKvHeads).
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ PromptAttention p) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), position = i / kRowPieces;
  if (position >= p.q.extent(0)) return;
  const int head = static_cast<int>(blockIdx.y), d = i % kRowPieces * 8;
  const bf16* keys =
      p.kv().keys(p.pages(0, position / kPage), head) + kernels::KvTiles::at(position % kPage, d);
  *reinterpret_cast<uint4*>(&p.gathered(0, head, position, d)) = *reinterpret_cast<const uint4*>(keys);
  *reinterpret_cast<uint4*>(&p.gathered(1, head, position, d)) =
      *reinterpret_cast<const uint4*>(keys + kernels::KvTiles::kElements);
}

// Of all threads; `of_warps` is one place for each warp.
template <class Op>
__device__ float over_block(float x, Op op, float (&of_warps)[kThreads / 32]) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) x = op(x, __shfl_xor_sync(~0u, x, other));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();  // every warp's is there
  x = of_warps[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) x = op(x, of_warps[w]);
  return x;
}

// Grid: (T, kGroup).
__global__ void __launch_bounds__(kThreads)
    soften_kernel(const __grid_constant__ PromptAttention p, int first_head) {
  __shared__ float maxima[kThreads / 32], sums[kThreads / 32];
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int stride = static_cast<int>(p.scores.stride(1));
  const int first  = p.window > 0 ? max(0, row - static_cast<int>(p.window) + 1) : 0;
  const auto* from = reinterpret_cast<const float4*>(&p.scores(head, row, 0));
  auto* to         = reinterpret_cast<uint2*>(&p.weights(head, row, 0));
  const auto quad  = [](int i) { return i * kThreads + static_cast<int>(threadIdx.x); };

  float s[kQuads][4];
  const float sink = p.sinks(first_head + head) * kLog2E;
  float most       = sink;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int at      = 4 * quad(i);
    const bool read   = at <= row && at + 3 >= first;
    const float4 four = read ? from[quad(i)] : float4{};
    const float x[]   = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e] = first <= at + e && at + e <= row ? x[e] * (kScale * kLog2E) : -INFINITY;
      most    = fmaxf(most, s[i][e]);
    }
  }
  most = over_block(
      most, [](float a, float b) { return fmaxf(a, b); }, maxima);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kQuads; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i][e] = ptx::exp2_approximate(s[i][e] - most);
      sum += s[i][e];
    }
  sum = over_block(
      sum, [](float a, float b) { return a + b; }, sums);

  const float share = 1 / (sum + ptx::exp2_approximate(sink - most));
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    if (4 * quad(i) >= stride) continue;
    const __nv_bfloat162 low  = __floats2bfloat162_rn(s[i][0] * share, s[i][1] * share);
    const __nv_bfloat162 high = __floats2bfloat162_rn(s[i][2] * share, s[i][3] * share);
    to[quad(i)] = {reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high)};
  }
}

}  // namespace

void gather(const PromptAttention& p, StreamRef stream) {
  const dim3 grid(blocks_for(p.tokens() * kRowPieces, kThreads), kKvHeads);
  gather_kernel<<<grid, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

void soften(const PromptAttention& p, int64_t kv_head, StreamRef stream) {
  const dim3 grid(static_cast<unsigned>(p.tokens()), kGroup);
  soften_kernel<<<grid, kThreads, 0, stream>>>(p, static_cast<int>(kv_head) * kGroup);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
