// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every block of 64 rows in whose
//         reach it is
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either, with
//         wgmma. mma.sync reaches some 60 % of its rate
// idea    scores never exist: a block has 64 rows of one head and walks over the pages in reach. Of a page a
//         warp's 16 x 64 scores are in its registers, and lie there as the next product wants its first
//         operand; what was summed before is brought to the new maximum. The sink is where maxima and sums
//         begin. While a page is used the next one is copied (cp.async), as it is: ldmatrix reads the cache's
//         swizzled rows without bank conflicts
// source  Dao, FlashAttention-2, arXiv:2307.08691, 2023, algorithm 1
#include <cuda_bf16.h>

#include <cmath>

#include "attention.h"
#include "core/cuda.h"
#include "core/ptx.cuh"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kRows = 64, kThreads = 128;      // of a block: 16 rows a warp
constexpr int kRowBytes  = kHeadDim * 2;       // of a position in a tile
constexpr int kTileBytes = kPage * kRowBytes;  // a page has one of keys and one of values, adjacent
constexpr int kRowPieces = kRowBytes / 16, kPieces = 2 * kTileBytes / 16;  // of a position, of a page
constexpr float kToLog2 = kScale * 1.44269504f;                            // a product's factor, to base 2

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

// A warp's 16 rows. Lane 4 g + t has rows g (h = 0) and g + 8 (h = 1), and of every 8 columns 2 t, 2 t + 1.
struct Rows {
  uint32_t q[4][4];  // as a first operand, 16 dimensions each
  float out[8][4];   // [dimension / 8][2 h + dimension % 2]
  float most[2];     // scores are to base 2
  float sum[2];      // of the lane's columns

  // `page` is in shared memory, its first position is `key`; the lane's first row is position `row`.
  __device__ void add(uint32_t page, int key, int row, int window, bool all_in_reach) {
    const int lane = threadIdx.x % 32;
    float s[8][4]  = {};
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        uint32_t m[4];  // dimensions 16 k .. + 32 of 8 keys
        ptx::load_matrices(m, page + (8 * i + lane % 8) * kRowBytes + ((2 * k + lane / 8) ^ lane % 8) * 16);
        ptx::mma_16x8x16(s[i], q[k], {m[0], m[1]});
        ptx::mma_16x8x16(s[i], q[k + 1], {m[2], m[3]});
      }
    if (!all_in_reach) {
      const int ahead = row - key - lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int behind = ahead + e / 2 * 8 - 8 * i - e % 2;
          if (behind < 0 || behind >= window) s[i][e] = -INFINITY;
        }
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = -INFINITY;
#pragma unroll
      for (int i = 0; i < 8; ++i) highest = fmaxf(highest, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
      highest           = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest           = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      highest           = fmaxf(most[h], highest * kToLog2);
      const float times = ptx::exp2_approximate(most[h] - highest);
      most[h]           = highest;
      sum[h] *= times;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        out[i][2 * h] *= times;
        out[i][2 * h + 1] *= times;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[i][e] = ptx::exp2_approximate(__fmaf_rn(s[i][e], kToLog2, -most[e / 2]));
        sum[e / 2] += s[i][e];
      }

#pragma unroll
    for (int k = 0; k < 4; ++k) {  // 16 keys
      const uint32_t weights[4] = {pack(s[2 * k][0], s[2 * k][1]), pack(s[2 * k][2], s[2 * k][3]),
                                   pack(s[2 * k + 1][0], s[2 * k + 1][1]),
                                   pack(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        uint32_t m[4];  // 16 keys' dimensions 8 i .. + 16
        ptx::load_matrices_transposed(
            m, page + kTileBytes + (16 * k + lane % 16) * kRowBytes + ((i + lane / 16) ^ lane % 8) * 16);
        ptx::mma_16x8x16(out[i], weights, {m[0], m[1]});
        ptx::mma_16x8x16(out[i + 1], weights, {m[2], m[3]});
      }
    }
  }
};

// Grid: (kHeads, blocks of rows), the last rows first: they take longest.
__global__ void __launch_bounds__(kThreads, 3) flash_kernel(const __grid_constant__ PromptAttention p) {
  __shared__ __align__(128) uint4 pages[2][kPieces];
  const int tokens = static_cast<int>(p.q.extent(0)), head = static_cast<int>(blockIdx.x);
  const int begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kRows, end = min(begin + kRows, tokens);
  const int window     = p.window > 0 ? static_cast<int>(p.window) : tokens;
  const int first_page = max(0, begin - window + 1) / kPage, last_page = (end - 1) / kPage;

  const auto fetch = [&](int page, int stage) {
    const bf16* from   = p.kv().keys(p.pages(0, page), head / kGroup) + threadIdx.x * 8;
    const int position = page * kPage + static_cast<int>(threadIdx.x) / kRowPieces;
#pragma unroll
    for (int n = 0; n < kPieces / kThreads; ++n) {
      // Behind the prompt there may be anything, and a weight of 0 times a NaN is one.
      const bool written = position + n * (kThreads / kRowPieces) % kPage < tokens;
      ptx::cp_async_16(&pages[stage][n * kThreads + threadIdx.x], from + n * (kThreads * 8),
                       written ? 16 : 0);
    }
    ptx::cp_async_commit();
  };
  fetch(first_page, 0);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = begin + 16 * warp + lane / 4;  // and row + 8
  Rows rows;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int r = row + i % 2 * 8, d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
    rows.q[i / 4][i % 4] = r < tokens ? *reinterpret_cast<const uint32_t*>(&p.q(r, head, d)) : 0;
  }
  rows.most[0] = rows.most[1] = p.sinks(head) * 1.44269504f;
  rows.sum[0] = rows.sum[1] = lane % 4 == 0 ? 1 : 0;  // the sink's weight, once a row
#pragma unroll
  for (auto& eight : rows.out)
    for (float& x : eight) x = 0;

  for (int page = first_page; page <= last_page; ++page) {
    const int stage = (page - first_page) % 2, key = page * kPage;
    ptx::cp_async_wait<0>();
    __syncthreads();  // the page is there, whoever copied it; and all have left the one before
    if (page < last_page) fetch(page + 1, 1 - stage);
    const bool all_in_reach = key + kPage - 1 <= begin && key > begin + kRows - 1 - window;
    rows.add(ptx::shared_address(pages[stage]), key, row, window, all_in_reach);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = rows.sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int r = row + 8 * h;
    if (r >= tokens) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      *reinterpret_cast<uint32_t*>(&p.out(r, head, 8 * i + lane % 4 * 2)) =
          pack(rows.out[i][2 * h] / total, rows.out[i][2 * h + 1] / total);
  }
}

}  // namespace

void flash(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "blocks of rows are counted by the grid's y");
  flash_kernel<<<dim3(kHeads, blocks_for(p.tokens(), kRows)), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
