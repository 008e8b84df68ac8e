// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows of 4
//         heads that reaches it
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either
// idea    a weight is 2^(score - reference), and any reference does while no weight overflows. It is the
//         row's sink and not the running maximum: no page is searched for a maximum, nothing is rescaled.
//         Where a lane's sum comes to 2^64 or more, its warpgroup multiplies the page's keys again, takes the
//         maximum as the new reference and rescales, which is rare
// source  Hong and others, FlashDecoding++, arXiv:2311.01282, 2023, section 3 (a unified maximum, with
//         recomputation); FlashAttention-4 rescales as rarely, but looks for maxima
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "cuda/wgmma.cuh"
#include "online_softmax.cuh"

namespace fathom::lab::flash_attention_gpu {
namespace {

constexpr float kBound = 0x1p64f;       // of a lane's sum of weights; bf16 and fp32 end at 2^128
constexpr int kStages = 8, kAhead = 6;  // pages: a ring of 128 KiB
constexpr int kHeadsOfCta = 4, kThreads = kHeadsOfCta * kWarpgroup;

struct Ring {
  alignas(1024) unsigned char pages[kStages][kPageBytes];
  uint64_t full[kStages], empty[kStages];
};

// Is it true in any thread of the warpgroup? Those of a CTA use barriers 1, 2, ...
__device__ bool any_of_warpgroup(bool here, int warpgroup) {
  int any;
  asm volatile(
      "{\n.reg .pred in, out;\nsetp.ne.s32 in, %1, 0;\nbarrier.cta.red.or.pred out, %2, 128, in;\n"
      "selp.s32 %0, 1, 0, out;\n}"
      : "=r"(any)
      : "r"(int{here}), "r"(1 + warpgroup)
      : "memory");
  return any != 0;
}

// By one warp: loads the page of step n, which takes the place of one that was left kStages - kAhead steps
// ago.
__device__ void load(const PromptAttention& p, int page, int kv_head, int n, Ring& ring) {
  const int stage = n % kStages;
  if (n >= kStages) ptx::mbarrier_wait(&ring.empty[stage], (n / kStages - 1) % 2);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&ring.full[stage], kPageBytes);
    ptx::cp_async_bulk_load(ring.pages[stage], p.kv().keys(page, kv_head), kPageBytes, &ring.full[stage]);
  }
  __syncwarp();
}

// Values behind the prompt may be anything, and a weight of 0 times NaN is NaN.
__device__ void clear_values(unsigned char* page, int positions) {
  auto* values = reinterpret_cast<uint4*>(page + kTileBytes);
  for (int i = positions * (kRowBytes / 16) + threadIdx.x; i < kTileBytes / 16; i += kThreads)
    values[i] = uint4{};
  ptx::fence_proxy_async();  // the tensor cores see the zeros
  __syncthreads();           // of all threads
}

// scores = q k', a group of products of its own.
__device__ void start_keys(Rows& rows, uint64_t page) {
  auto& scores = reinterpret_cast<float(&)[32]>(rows.scores);
#pragma unroll
  for (int k = 0; k < 4; ++k) ptx::wgmma(scores, rows.q[k], ptx::advance_descriptor(page, 32 * k), k > 0);
  ptx::wgmma_commit_group();
}

// out += weights v, another one.
__device__ void start_values(Rows& rows, const uint32_t (&weights)[4][4], uint64_t page) {
  auto& out = reinterpret_cast<float(&)[32]>(rows.out);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<ptx::Major::mn>(out, weights[k], ptx::advance_descriptor(page, kTileBytes + 2048 * k), true);
  ptx::wgmma_commit_group();
}

// Grid: (kHeads / kHeadsOfCta, tiles). The last tiles reach the most pages, and begin first.
__global__ void __launch_bounds__(kThreads, 1) unified_max_kernel(const __grid_constant__ PromptAttention p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Ring& ring = *reinterpret_cast<Ring*>(memory);
  const Tile tile(p, static_cast<int>(gridDim.y - 1 - blockIdx.y));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // in a uniform register
  const int head = static_cast<int>(blockIdx.x) * kHeadsOfCta + warp / 4;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&ring.full[s], 1);
      ptx::mbarrier_init(&ring.empty[s], kThreads / 32);
    }
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads
  const int kv_head = head / kGroup, steps = tile.last_page - tile.first_page + 1;
  if (warp == 0)
    for (int n = 0; n < min(steps, kAhead); ++n) load(p, p.pages(0, tile.first_page + n), kv_head, n, ring);

  Rows rows(p, head, tile.begin + 16 * (warp % 4));
  auto& scores            = reinterpret_cast<float(&)[32]>(rows.scores);
  auto& out               = reinterpret_cast<float(&)[32]>(rows.out);
  uint32_t weights[4][4]  = {};  // of the page before
  const uint64_t operands = ptx::smem_descriptor_128b(ptx::shared_address(ring.pages));
  int before              = 0;  // its stage
  for (int page = tile.first_page; page <= tile.last_page; ++page) {
    const int n = page - tile.first_page, stage = n % kStages;
    const int written = static_cast<int>(p.q.extent(0)) - page * kPage;
    ptx::mbarrier_wait(&ring.full[stage], n / kStages % 2);
    if (written < kPage) clear_values(ring.pages[stage], written);
    const uint64_t operand = ptx::advance_descriptor(operands, stage * kPageBytes);
    ptx::warpgroup_fence_operand(scores);
    ptx::warpgroup_fence_operand(out);
    ptx::wgmma_fence();
    start_keys(rows, operand);
    // In the first step the weights are 0, and the page is this one.
    start_values(rows, weights, ptx::advance_descriptor(operands, before * kPageBytes));
    if (warp == 0 && n + kAhead < steps) load(p, p.pages(0, page + kAhead), kv_head, n + kAhead, ring);
    ptx::wgmma_wait_group<1>();  // scores are there, values are still being added
    ptx::warpgroup_fence_operand(scores);
    if (!tile.sees_all_of(page)) rows.mask(page, tile.window);
    const float sums[2] = {rows.sum[0], rows.sum[1]};
    rows.exponentiate();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(out);
    for (auto& of_step : weights)
      ptx::warpgroup_fence_operand(of_step);  // the tensor cores read them until now
    if (n > 0 && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[before]);
    if (any_of_warpgroup(!(rows.sum[0] < kBound && rows.sum[1] < kBound), warp / 4)) {
      rows.sum[0] = sums[0], rows.sum[1] = sums[1];
      ptx::warpgroup_fence_operand(scores);
      ptx::wgmma_fence();
      start_keys(rows, operand);
      ptx::wgmma_wait_group<0>();
      ptx::warpgroup_fence_operand(scores);
      if (!tile.sees_all_of(page)) rows.mask(page, tile.window);
      rows.raise_max();
      rows.rescale_out();
      rows.exponentiate();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) rows.pack_weights(weights[k], k);
    before = stage;
  }
  ptx::warpgroup_fence_operand(out);
  ptx::wgmma_fence();
  start_values(rows, weights, ptx::advance_descriptor(operands, before * kPageBytes));
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(out);
  rows.store(p, head);
}

}  // namespace

void unified_max(const PromptAttention& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "tiles are counted by the grid's y");
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(unified_max_kernel, sizeof(Ring)), true; });
  const dim3 grid(kHeads / kHeadsOfCta, blocks_for(p.tokens(), kRows));
  unified_max_kernel<<<grid, kThreads, sizeof(Ring), stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::flash_attention_gpu
