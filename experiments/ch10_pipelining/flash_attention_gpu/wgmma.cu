// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows that
//         reaches it
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either
// idea    wgmma: a warpgroup's four warps multiply 64 rows at once, and the tensor cores read keys and values
//         from shared memory themselves, through a descriptor of the 128-byte swizzle that the cache has. No
//         ldmatrix, and twice the rate of mma.sync. The warpgroup waits for each product; other CTAs of the
//         SM use the tensor cores meanwhile
// source  PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix Instructions"
#include "cuda/check.h"
#include "cuda/wgmma.cuh"
#include "online_softmax.cuh"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kThreads = kWarpgroup, kPieces = kPageBytes / 16;  // of 16 bytes

// scores = q k'
__device__ void multiply_keys(Rows& rows, uint64_t page) {
  auto& scores = reinterpret_cast<float(&)[32]>(rows.scores);
  ptx::warpgroup_fence_operand(scores);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) ptx::wgmma(scores, rows.q[k], ptx::advance_descriptor(page, 32 * k), k > 0);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(scores);
}

// out += weights v
__device__ void add_values(Rows& rows, uint64_t page) {
  auto& out = reinterpret_cast<float(&)[32]>(rows.out);
  uint32_t weights[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) rows.pack_weights(weights[k], k);
  ptx::warpgroup_fence_operand(out);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<ptx::Major::mn>(out, weights[k], ptx::advance_descriptor(page, kTileBytes + 2048 * k), true);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(out);
}

// Grid: (kHeads, tiles). The last tiles reach the most pages, and begin first.
__global__ void __launch_bounds__(kThreads, 3) wgmma_kernel(const __grid_constant__ PromptAttention p) {
  __shared__ __align__(1024) uint4 pages[2][kPieces];
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
    ptx::fence_proxy_async();  // the tensor cores see this thread's copies
    __syncthreads();           // the page is there, whoever copied it; and all have left the one before
    if (page < tile.last_page) fetch(page + 1, 1 - stage);
    const uint64_t operand = ptx::smem_descriptor_128b(ptx::shared_address(pages[stage]));
    multiply_keys(rows, operand);
    if (!tile.sees_all_of(page)) rows.mask(page, tile.window);
    rows.raise_max();
    rows.rescale_out();
    rows.exponentiate();
    add_values(rows, operand);
  }
  rows.store(p, head);
}

}  // namespace

void wgmma(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "tiles are counted by the grid's y");
  wgmma_kernel<<<dim3(kHeads, blocks_for(p.tokens(), kRows)), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
