// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows that
//         reaches it
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either, with
//         wgmma. mma.sync reaches some 60 % of its rate
// idea    scores never leave the registers: a CTA has 64 rows of one head and walks over the pages in reach.
//         A warp's 16 x 64 scores of a page are accumulators, and lie as the A operand of the next product
//         does; older sums are rescaled to the new maximum. The sink is where maxima and sums begin. cp.async
//         copies the next page while this one is used, as it is: ldmatrix reads the cache's swizzled rows
//         without bank conflicts
// source  Dao, FlashAttention-2, arXiv:2307.08691, 2023, algorithm 1
#include "cuda/check.h"
#include "flash.h"
#include "online_softmax.cuh"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kThreads = kWarpgroup, kPieces = kPageBytes / 16;  // of 16 bytes

// scores = q k'
__device__ void multiply_keys(Rows& rows, uint32_t page) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (float& score : rows.scores[i]) score = 0;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      uint32_t m[4];  // dimensions 16 k .. + 32 of 8 keys
      ptx::ldmatrix_x4(m, page + (8 * i + lane % 8) * kRowBytes + ((2 * k + lane / 8) ^ lane % 8) * 16);
      ptx::mma_m16n8k16(rows.scores[i], rows.q[k], {m[0], m[1]});
      ptx::mma_m16n8k16(rows.scores[i], rows.q[k + 1], {m[2], m[3]});
    }
  }
}

// out += weights v
__device__ void add_values(Rows& rows, uint32_t page) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 4; ++k) {  // 16 keys
    uint32_t weights[4];
    rows.pack_weights(weights, k);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      uint32_t m[4];  // 16 keys' dimensions 8 i .. + 16
      ptx::ldmatrix_x4_trans(
          m, page + kTileBytes + (16 * k + lane % 16) * kRowBytes + ((i + lane / 16) ^ lane % 8) * 16);
      ptx::mma_m16n8k16(rows.out[i], weights, {m[0], m[1]});
      ptx::mma_m16n8k16(rows.out[i + 1], weights, {m[2], m[3]});
    }
  }
}

// Grid: (kHeads, tiles). The last tiles reach the most pages, and begin first.
__global__ void __launch_bounds__(kThreads, 3) flash_kernel(const __grid_constant__ PromptAttention p) {
  __shared__ __align__(128) uint4 pages[2][kPieces];
  const Tile tile(p, static_cast<int>(gridDim.y - 1 - blockIdx.y));
  const int head = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32;

  const auto fetch = [&](int page, int stage) {
    const bf16* from   = p.kv().keys(p.pages(0, page), head / kGroup) + threadIdx.x * 8;
    const int position = page * kPage + static_cast<int>(threadIdx.x) / (kRowBytes / 16);
#pragma unroll
    for (int n = 0; n < kPieces / kThreads; ++n) {
      // Positions behind the prompt may hold anything, and a weight of 0 times NaN is NaN.
      const bool written = position + n * (kThreads * 16 / kRowBytes) % kPage < p.q.extent(0);
      ptx::cp_async_cg(&pages[stage][n * kThreads + threadIdx.x], from + n * (kThreads * 8),
                       written ? 16 : 0);
    }
    ptx::cp_async_commit_group();
  };
  fetch(tile.first_page, 0);

  Rows rows(p, head, tile.begin + 16 * warp);
  for (int page = tile.first_page; page <= tile.last_page; ++page) {
    const int stage = (page - tile.first_page) % 2;
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the page is there, whoever copied it; and all have left the one before
    if (page < tile.last_page) fetch(page + 1, 1 - stage);
    const uint32_t address = ptx::shared_address(pages[stage]);
    multiply_keys(rows, address);
    if (!tile.sees_all_of(page)) rows.mask(page, tile.window);
    rows.raise_max();
    rows.rescale_out();
    rows.exponentiate();
    add_values(rows, address);
  }
  rows.store(p, head);
}

}  // namespace

void flash(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "tiles are counted by the grid's y");
  flash_kernel<<<dim3(kHeads, blocks_for(p.tokens(), kRows)), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
