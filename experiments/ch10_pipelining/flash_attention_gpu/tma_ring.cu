// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows that
//         reaches it
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either
// idea    a producer warp and TMA: one thread asks for whole pages, a bulk copy of 16 KiB each, into a ring
//         of stages. An mbarrier for each stage says that its page is there, another that all four warps have
//         left it. The warps that multiply copy nothing, and pages come several steps ahead
// source  Shah and others, FlashAttention-3, arXiv:2407.08608, 2024, section 3.1
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "cuda/wgmma.cuh"
#include "online_softmax.cuh"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr int kStages    = 4;  // pages: a ring of 64 KiB
constexpr int kConsumers = kWarpgroup, kThreads = kConsumers + 32;

struct Ring {
  alignas(1024) unsigned char pages[kStages][kPageBytes];
  uint64_t full[kStages], empty[kStages];
};

// One thread loads the pages in reach, as far ahead as the ring has room.
__device__ void produce(const PromptAttention& p, const Tile& tile, int kv_head, Ring& ring) {
  for (int n = 0; n <= tile.last_page - tile.first_page; ++n) {
    const int stage = n % kStages;
    if (n >= kStages) ptx::mbarrier_wait(&ring.empty[stage], (n / kStages - 1) % 2);
    ptx::mbarrier_arrive_expect_tx(&ring.full[stage], kPageBytes);
    ptx::cp_async_bulk_load(ring.pages[stage], p.kv().keys(p.pages(0, tile.first_page + n), kv_head),
                            kPageBytes, &ring.full[stage]);
  }
}

// Values behind the prompt may be anything, and a weight of 0 times NaN is NaN.
__device__ void clear_values(unsigned char* page, int positions) {
  auto* values = reinterpret_cast<uint4*>(page + kTileBytes);
  for (int i = positions * (kRowBytes / 16) + threadIdx.x; i < kTileBytes / 16; i += kConsumers)
    values[i] = uint4{};
  ptx::fence_proxy_async();      // the tensor cores see the zeros
  ptx::bar_sync(1, kConsumers);  // of all threads
}

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
__global__ void __launch_bounds__(kThreads, 3) tma_ring_kernel(const __grid_constant__ PromptAttention p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Ring& ring = *reinterpret_cast<Ring*>(memory);
  const Tile tile(p, static_cast<int>(gridDim.y - 1 - blockIdx.y));
  const int head = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&ring.full[s], 1);
      ptx::mbarrier_init(&ring.empty[s], kConsumers / 32);
    }
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads
  if (warp == kConsumers / 32) {
    if (threadIdx.x % 32 == 0) produce(p, tile, head / kGroup, ring);
    return;
  }

  Rows rows(p, head, tile.begin + 16 * warp);
  const uint64_t operands = ptx::smem_descriptor_128b(ptx::shared_address(ring.pages));
  for (int page = tile.first_page; page <= tile.last_page; ++page) {
    const int n = page - tile.first_page, stage = n % kStages;
    const int written = static_cast<int>(p.q.extent(0)) - page * kPage;
    ptx::mbarrier_wait(&ring.full[stage], n / kStages % 2);
    if (written < kPage) clear_values(ring.pages[stage], written);
    const uint64_t operand = ptx::advance_descriptor(operands, stage * kPageBytes);
    multiply_keys(rows, operand);
    if (!tile.sees_all_of(page)) rows.mask(page, tile.window);
    rows.raise_max();
    rows.rescale_out();
    rows.exponentiate();
    add_values(rows, operand);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[stage]);  // the warp has left the page
  }
  rows.store(p, head);
}

}  // namespace

void tma_ring(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "tiles are counted by the grid's y");
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(tma_ring_kernel, sizeof(Ring)), true; });
  const dim3 grid(kHeads, blocks_for(p.tokens(), kRows));
  tma_ring_kernel<<<grid, kThreads, sizeof(Ring), stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
