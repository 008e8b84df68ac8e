// out = softmax(scale q K^T, sink) V over positions in reach        bf16, sums in fp32
//
// bytes   256 Hq a row for q and out; 256 Hkv for each position in reach, for every tile of 64 rows, mostly
//         from L2
// flops   256 Hq for each pair of a row and a position in its reach
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either. Long
//         prompts reach 60 % of that; short ones and windows are limited by how fast CTAs begin and end
// idea    A warpgroup has the same 64 rows of one query head. The warpgroups of a CTA have neighbouring heads
//         of the same key-value head, so that a loaded page serves all of them. q stays in registers, and so
//         do the weights: the accumulator layout of scores is the A fragment layout of the next product
//         (FlashAttention-2 and -3, Dao and others 2023, 2024). While the tensor cores add the last page's
//         values and multiply the next page's keys, the warpgroup computes exponentials of this page's
//         scores.
//
// A quantised page is dequantised to bf16 in shared memory, a part of it by every warp, one step before its
// scores are needed, while the tensor cores add values. In that case keys are multiplied after the
// dequantisation, not before the values, because dequantising needs the registers that the scores will take.
// Sums are the same.
//
// There is no producer warp: 4 warpgroups need 128 registers a thread, which is all there are. The first
// warps of the warpgroups take turns in loading a page far ahead. Nor does a row track its maximum: see
// kBound.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "cuda/wgmma.cuh"
#include "kernels/attention/kv_page_dequantize.cuh"
#include "kernels/attention/prefill_attention.h"

namespace fathom::kernels {
namespace {

constexpr int kPage          = kTile;
constexpr int kPiece         = 16;  // bytes: a vector, and the unit of addresses in a wgmma descriptor
constexpr int kRowPieces     = kHeadDim * sizeof(bf16) / kPiece;
constexpr int kPageBytes     = 2 * kPage * kRowPieces * kPiece;  // keys, then values: adjacent in the cache
constexpr uint32_t kAllLanes = 0xffffffff;
constexpr float kLog2E       = 1.4426950408889634f;
constexpr float kMasked      = -INFINITY;

// A weight is 2^(score - reference), with scores in units of log2. Any reference works as long as no weight
// overflows and the weights do not underflow beside one that counts. So a row's reference is its sink, whose
// weight is then 1, and not its maximum. Once a lane's weights of a page sum to 2^64, Rows::rescale makes the
// page's maximum the reference. Weights that large are as exact as others in fp32 and bf16; weights that
// underflow, below 2^-126, do not count beside the sink. (With maxima 8192 positions took 1140 us instead of
// 880.)
constexpr float kBound = 0x1p64f;

// Tells the compiler that a number is warp-uniform, so that it stays in uniform registers.
__device__ int warp_uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

template <class Kv>
struct PrefillAttention {
  const bf16* q;
  bf16* out;
  Kv kv;
  const float* sinks;
  const PrefillTile* tiles;
  const int32_t* positions;
  const int32_t* pages;
  int pages_stride, query_heads, group, window;
  float scale;
};

// The page pipeline in shared memory. TMA copies pages into kStages stages; in bf16 they are wgmma operands.
template <class Kv, int kStages>
struct PagePipeline;
template <int kStages>
struct PagePipeline<Bf16KvPages, kStages> {
  static constexpr int kOperands = kStages, kCopied = kPageBytes;

  alignas(1024) unsigned char pages[kStages][kPageBytes];
  uint64_t full[kStages], empty[kStages];

  __device__ unsigned char* copied(int stage) { return pages[stage]; }
  __device__ static const void* source(const Bf16KvPages& kv, int page, int head) {
    return kv.keys(page, head);
  }
};

// Quantised pages are dequantised into kOperands operand buffers. The operand of step n replaces that of
// step n - 4. The warps that dequantise it, in step n - 1, have waited for `ready` of step n - 1. By then all
// warps were in step n - 2 at least, and had finished with the values of step n - 4.
template <class Kv, int kStages>
struct PagePipeline {
  static constexpr int kOperands = 4, kCopied = Kv::kPageBytes;

  alignas(1024) unsigned char pages[kOperands][kPageBytes];
  alignas(128) unsigned char packed[kStages][kCopied];
  uint64_t full[kStages], ready[kOperands];

  __device__ unsigned char* copied(int stage) { return packed[stage]; }
  __device__ static const void* source(const Kv& kv, int page, int head) { return kv.strips(page, head); }
};

// A CTA has kWarpgroups query heads; kCtasPerSm CTAs fit on a multiprocessor.
template <class Kv_, int kWarpgroups, int kStages_, int kLead_, int kCtasPerSm_>
struct TileShape {
  using Kv                         = Kv_;
  using Shared                     = PagePipeline<Kv, kStages_>;
  static constexpr bool kQuantized = !std::is_same_v<Kv, Bf16KvPages>;
  static constexpr int kThreads    = 128 * kWarpgroups;
  static constexpr int kHeads = kWarpgroups, kStages = kStages_, kLead = kLead_, kCtasPerSm = kCtasPerSm_;
  // The page kLead steps ahead replaces one that every warpgroup released kStages - kLead steps ago.
  static_assert(kLead < kStages && kLead <= 32);
};
template <class Kv>
using FourHeads = TileShape<Kv, 4, 12, 8, 1>;
// More copies for each head, but one CTA computes while the other begins or ends.
template <class Kv>
using TwoHeads = TileShape<Kv, 2, std::is_same_v<Kv, Bf16KvPages> ? 6 : 5, 4, 2>;

// The part of a page in reach of a thread's rows: the causal and window mask.
struct Reach {
  // Row h = 0 sees columns last - window + 1 .. last, counted from the thread's first column.
  int last, window;

  __device__ bool in_reach(int h, int column) const {
    const int behind = last + 8 * h - column;
    return behind >= 0 && behind < window;
  }
};

// A thread's part of a warp's 16 rows: rows lane / 4 (h = 0) and lane / 4 + 8 (h = 1), columns 2 (lane % 4)
// and 2 (lane % 4) + 1 of every 8.
struct Rows {
  float scores[32];  // [column / 8][h][2], over a page's positions; then their weights
  float out[32];     // the same layout, over dimensions
  uint32_t weights[4][4] = {};
  float reference[2], sum[2];
  float page_sum[2];  // of a page's weights

  __device__ void mask(const Reach& reach) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!reach.in_reach(i / 2 % 2, i / 4 * 8 + i % 2)) scores[i] = kMasked;
  }

  // Turns scores into weights. False if the weights of some lane exceed kBound.
  __device__ bool exponentiate(float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      page_sum[h] = 0;
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) {
        scores[i]     = ptx::ex2_approx(__fmaf_rn(scores[i], scale, -reference[h]));
        scores[i + 1] = ptx::ex2_approx(__fmaf_rn(scores[i + 1], scale, -reference[h]));
        page_sum[h] += scores[i] + scores[i + 1];
      }
    }
    return __all_sync(kAllLanes, page_sum[0] < kBound && page_sum[1] < kBound);  // false for infinity too
  }

  // For rows with a lane whose weights exceeded kBound: the page's maximum becomes their reference. The
  // scores have been overwritten, so mma.sync recomputes them from the page's keys, 8 positions at a time,
  // once for the maximum and once for the weights. Rare. The other rows keep their weights.
  __device__ void rescale(const uint32_t (&q)[4][4], uint32_t keys, const Reach& reach, float scale) {
    const int lane              = threadIdx.x % 32;
    const auto recompute_scores = [&](float(&recomputed)[4], int i) {
#pragma unroll
      for (float& x : recomputed) x = 0;
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        uint32_t m[4];
        const int row = lane % 8, piece = 2 * k + lane / 8;
        ptx::ldmatrix_x4(m, keys + (8 * i + row) * kRowPieces * kPiece + (piece ^ row) * kPiece);
        ptx::mma_m16n8k16(recomputed, q[k], {m[0], m[1]});
        ptx::mma_m16n8k16(recomputed, q[k + 1], {m[2], m[3]});
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        recomputed[j] = reach.in_reach(j / 2, 8 * i + j % 2) ? recomputed[j] * scale : kMasked;
    };
    float row_max[2] = {kMasked, kMasked}, recomputed[4];
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      recompute_scores(recomputed, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) row_max[j / 2] = fmaxf(row_max[j / 2], recomputed[j]);
    }
    bool exceeded[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      exceeded[h] = (__ballot_sync(kAllLanes, !(page_sum[h] < kBound)) >> lane / 4 * 4 & 15) != 0;
      row_max[h]  = quad_reduce_max(row_max[h]);
      if (!exceeded[h]) continue;
      const float change = ptx::ex2_approx(reference[h] - row_max[h]);
      sum[h] *= change;
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) {
        out[i] *= change;
        out[i + 1] *= change;
      }
      reference[h] = row_max[h];
      page_sum[h]  = 0;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      recompute_scores(recomputed, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!exceeded[h]) continue;
        const float first             = ptx::ex2_approx(recomputed[2 * h] - reference[h]);
        const float second            = ptx::ex2_approx(recomputed[2 * h + 1] - reference[h]);
        weights[i / 2][i % 2 * 2 + h] = pack_bf16x2(first, second);
        page_sum[h] += first + second;
      }
    }
  }
};

// Stores a row of 64 numbers. Its quad of lanes has 2 of every 8 columns in each lane; afterwards lane t
// stores the 16-byte vectors to[t] and to[4 + t]. A 4 x 4 transposition in two exchanges.
__device__ void store_row(uint4* to, const uint32_t (&pairs)[8], bool stored) {
  const int t    = threadIdx.x % 4;
  const bool odd = t % 2 != 0, upper = t / 2 != 0;
  uint32_t left[4], right[4];  // columns 4 (t / 2) .. + 4 of the 8 numbered 2 i + t % 2
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t got = __shfl_xor_sync(kAllLanes, odd ? pairs[2 * i] : pairs[2 * i + 1], 1);
    left[i]            = odd ? got : pairs[2 * i];
    right[i]           = odd ? pairs[2 * i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t a = __shfl_xor_sync(kAllLanes, upper ? left[2 * i] : left[2 * i + 1], 2);
    const uint32_t b = __shfl_xor_sync(kAllLanes, upper ? right[2 * i] : right[2 * i + 1], 2);
    if (stored)
      to[4 * i + t] =
          upper ? uint4{a, b, left[2 * i + 1], right[2 * i + 1]} : uint4{left[2 * i], right[2 * i], a, b};
  }
}

// A stage and the parity of its phase.
struct PipelineState {
  int stage = 0, phase = 0;

  __device__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

// CTA (x, y): tile gridDim.x - 1 - x, heads y kHeads .. (y + 1) kHeads.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kCtasPerSm)
    prefill_attention_kernel(const __grid_constant__ PrefillAttention<typename S::Kv> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& pipeline        = *reinterpret_cast<typename S::Shared*>(memory);
  constexpr int kStages = S::kStages;
  const int warp        = warp_uniform(threadIdx.x / 32);
  const int lane = threadIdx.x % 32, warpgroup = warp / 4;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&pipeline.full[i], 1);
      if constexpr (!S::kQuantized) ptx::mbarrier_init(&pipeline.empty[i], S::kThreads / 32);
    }
    if constexpr (S::kQuantized)
      for (uint64_t& ready : pipeline.ready) ptx::mbarrier_init(&ready, S::kThreads / 32);
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
  }
  __syncthreads();  // and so do the other threads
  ptx::griddepcontrol_wait();

  const PrefillTile tile = a.tiles[gridDim.x - 1 - blockIdx.x];
  if (tile.rows == 0) return;
  const int begin = a.positions[tile.row], end = begin + tile.rows;
  const int head = blockIdx.y * S::kHeads + warpgroup, kv_head = blockIdx.y * S::kHeads / a.group;
  const int first_page = max(0, begin - a.window + 1) / kPage, steps = (end - 1) / kPage + 1 - first_page;
  const int pages_at = tile.sequence * a.pages_stride + first_page;

  // Step n processes page first_page + n, in stage n % kStages, in that stage's phase n / kStages. Lanes of
  // warp 0 load the first pages, one each. In step n, the first warp of warpgroup n % kHeads loads the page
  // of step n + kLead; its lanes have prefetched 32 of the page numbers that the warp will need.
  const auto load = [&](int n, int page) {
    ptx::mbarrier_arrive_expect_tx(&pipeline.full[n % kStages], pipeline.kCopied);
    ptx::cp_async_bulk_load(pipeline.copied(n % kStages), pipeline.source(a.kv, page, kv_head),
                            pipeline.kCopied, &pipeline.full[n % kStages]);
  };
  if (warp == 0 && lane < min(steps, S::kLead)) load(lane, a.pages[pages_at + lane]);
  int fetched           = 0;
  const auto load_ahead = [&](int n) {
    const int to = n + S::kLead, queued = n / S::kHeads % 32;
    if (warp != n % S::kHeads * 4 || to >= steps) return;
    if (queued == 0) fetched = a.pages[pages_at + min(to + lane * S::kHeads, steps - 1)];
    const int page = __shfl_sync(kAllLanes, fetched, queued);
    if constexpr (!S::kQuantized)  // quantised: `ready` of this step implies it, as the stage's page was
                                   // dequantised before
      if (to >= kStages)
        ptx::mbarrier_wait(&pipeline.empty[to % kStages], (to / kStages - 1) & 1);  // released by all warps
    if (lane == 0) load(to, page);
  };
  const auto wait_for_page = [&](const PipelineState& state, bool last) {
    if constexpr (S::kQuantized) return ptx::mbarrier_wait(&pipeline.ready[state.stage], state.phase);
    ptx::mbarrier_wait(&pipeline.full[state.stage], state.phase);
    if (!last || end % kPage == 0) return;
    // The end of the last page is not written yet. Weights there are 0, but 0 times NaN is NaN.
    for (int i = threadIdx.x; i < kPage * kRowPieces; i += S::kThreads)
      if (i >= end % kPage * kRowPieces)
        reinterpret_cast<uint4*>(pipeline.pages[state.stage] + kPageBytes / 2)[i] = uint4{};
    ptx::fence_proxy_async();  // the tensor cores see the zeros
    __syncthreads();           // zeroed by all threads
  };

  // Dequantises the page of step n to an operand. Values behind the last page's end become zeros.
  const auto dequantize = [&](int n) {
    if constexpr (S::kQuantized) {
      if (n >= steps) return;
      constexpr int kOperands = S::Shared::kOperands;
      ptx::mbarrier_wait(&pipeline.full[n % kStages], n / kStages & 1);
      dequantize_kv_page<typename S::Kv, S::kThreads>(
          pipeline.packed[n % kStages], pipeline.pages[n % kOperands], end - (first_page + n) * kPage);
      ptx::fence_proxy_async();  // the tensor cores see what was stored
      __syncwarp();              // stores of all lanes
      if (lane == 0) ptx::mbarrier_arrive(&pipeline.ready[n % kOperands]);
    }
  };

  const int row = warp % 4 * 16 + lane / 4;  // and row + 8
  uint32_t q[4][4];                          // A fragments of the warp's rows; zeros behind the tile's end
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int r         = row + i % 2 * 8;
    const int64_t place = int64_t{(tile.row + r) * a.query_heads + head} * kHeadDim;
    const int column    = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
    q[i / 4][i % 4]     = r < tile.rows ? *reinterpret_cast<const uint32_t*>(a.q + place + column) : 0;
  }

  const int warp_begin  = begin + warp % 4 * 16;
  const auto reach_from = [&](int key) {
    return Reach{warp_begin + lane / 4 - (key + lane % 4 * 2), a.window};
  };
  Rows rows;
  rows.reference[0] = rows.reference[1] = a.sinks[head] * kLog2E;
  rows.sum[0] = rows.sum[1] = lane % 4 == 0 ? 1 : 0;  // the sink counts once
#pragma unroll
  for (float& x : rows.out) x = 0;
  const uint64_t operands  = ptx::smem_descriptor_128b(ptx::shared_address(pipeline.pages));
  const auto multiply_keys = [&](int stage) {
    const uint64_t keys = operands + stage * (kPageBytes / kPiece);
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::wgmma(rows.scores, q[k], keys + k * 32 / kPiece, k > 0);
    ptx::wgmma_commit_group();
  };
  const auto add_values = [&](int stage) {
    const uint64_t values = operands + stage * (kPageBytes / kPiece) + kPageBytes / 2 / kPiece;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::wgmma<ptx::Major::mn>(rows.out, rows.weights[k], values + k * 2048 / kPiece, true);
  };

  PipelineState state;
  int previous_stage = 0;
  dequantize(0);
  for (int n = 0; n < steps; ++n) {
    wait_for_page(state, n == steps - 1);
    if constexpr (!S::kQuantized) ptx::warpgroup_fence_operand(rows.scores);
    ptx::warpgroup_fence_operand(rows.out);
    ptx::wgmma_fence();
    if constexpr (S::kQuantized) {
      add_values(previous_stage);  // in the first step the weights are zero
      ptx::wgmma_commit_group();
      dequantize(n + 1);  // uses the registers of the scores
      ptx::mark_dead(rows.scores);
      ptx::wgmma_fence();
      multiply_keys(state.stage);
      load_ahead(n);
      ptx::wgmma_wait_group<0>();
#pragma unroll
      for (auto& fragment : rows.weights)
        ptx::warpgroup_fence_operand(fragment);  // the wgmmas read them until now
    } else {
      multiply_keys(state.stage);
      add_values(previous_stage);
      ptx::wgmma_commit_group();
      load_ahead(n);
      ptx::wgmma_wait_group<1>();
    }
    ptx::warpgroup_fence_operand(rows.scores);
    const int key = (first_page + n) * kPage;
    if (key + kPage - 1 > warp_begin ||
        key <= warp_begin + 15 - a.window)  // else all of the page is in reach
      rows.mask(reach_from(key));
    const bool fits = rows.exponentiate(a.scale);
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(rows.out);
    ptx::warpgroup_fence_operand(rows.scores);  // the wgmmas read the weights' registers until now
    if constexpr (!S::kQuantized)
      if (n > 0 && lane == 0) ptx::mbarrier_arrive(&pipeline.empty[previous_stage]);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      rows.weights[i / 4][i % 4] = pack_bf16x2(rows.scores[2 * i], rows.scores[2 * i + 1]);
    if (!fits) rows.rescale(q, ptx::shared_address(pipeline.pages[state.stage]), reach_from(key), a.scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] += rows.page_sum[h];
    previous_stage = state.stage;
    state.advance(S::Shared::kOperands);
  }
  ptx::griddepcontrol_launch_dependents();
  ptx::warpgroup_fence_operand(rows.out);
  ptx::wgmma_fence();
  add_values(previous_stage);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(rows.out);

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float inverse_sum = __fdividef(KvFactors<typename S::Kv>::kValue, quad_reduce_sum(rows.sum[h]));
    uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      pairs[i] =
          pack_bf16x2(rows.out[4 * i + 2 * h] * inverse_sum, rows.out[4 * i + 2 * h + 1] * inverse_sum);
    bf16* to = a.out + int64_t{(tile.row + row + 8 * h) * a.query_heads + head} * kHeadDim;
    store_row(reinterpret_cast<uint4*>(to), pairs, row + 8 * h < tile.rows);
  }
}

template <class S>
void launch(const PrefillAttention<typename S::Kv>& prompt, int64_t tiles, StreamRef stream) {
  launch_with_pdl(prefill_attention_kernel<S>,
                  dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(prompt.query_heads / S::kHeads)),
                  dim3(S::kThreads), sizeof(typename S::Shared), stream, prompt);
}

template <class Kv>
void launch_prefill_attention(View<const bf16, 3> q, const Kv& kv, View<const float, 1> sinks, float scale,
                              int64_t window, View<const PrefillTile, 1> tiles, const PagedRows& rows,
                              View<bf16, 3> out, StreamRef stream) {
  using Four          = FourHeads<Kv>;
  using Two           = TwoHeads<Kv>;
  const int64_t heads = q.extent(1);
  FATHOM_EXPECT(q.extent(2) == kHeadDim && q.contiguous(), "attention: q must be [T, Hq, 64], contiguous");
  FATHOM_EXPECT(
      out.extent(0) == q.extent(0) && out.extent(1) == heads && out.extent(2) == kHeadDim && out.contiguous(),
      "attention: out must be like q");
  FATHOM_EXPECT(kv.heads > 0 && heads % kv.heads == 0 && heads / kv.heads % Four::kHeads == 0,
                "attention: a key-value head must have a multiple of 4 query heads");
  FATHOM_EXPECT(sinks.extent(0) == heads, "attention: each query head has a sink");
  FATHOM_EXPECT(rows.positions.extent(0) == q.extent(0), "attention: positions must be [T]");
  FATHOM_EXPECT(scale > 0 && window >= 0, "attention: scale must be positive, window not negative");
  if (tiles.extent(0) == 0) return;
  // Both, as the next call may be captured.
  allow_shared_memory_once<prefill_attention_kernel<Four>>(sizeof(typename Four::Shared));
  allow_shared_memory_once<prefill_attention_kernel<Two>>(sizeof(typename Two::Shared));
  constexpr int64_t kNoWindow = INT32_MAX / 2;
  const PrefillAttention<Kv> prompt{
      .q            = q.data(),
      .out          = out.data(),
      .kv           = kv,
      .sinks        = sinks.data(),
      .tiles        = tiles.data(),
      .positions    = rows.positions.data(),
      .pages        = rows.pages.data(),
      .pages_stride = static_cast<int>(rows.pages.stride(0)),
      .query_heads  = static_cast<int>(heads),
      .group        = static_cast<int>(heads / kv.heads),
      .window       = static_cast<int>(window > 0 ? std::min(window, kNoWindow) : kNoWindow),
      .scale        = scale * kLog2E * KvFactors<Kv>::kKey};
  // Few steps for each CTA, or few CTAs.
  if ((window > 0 && window <= 4 * kPage) || tiles.extent(0) * heads / Four::kHeads < multiprocessors())
    launch<Two>(prompt, tiles.extent(0), stream);
  else
    launch<Four>(prompt, tiles.extent(0), stream);
}

}  // namespace

void prefill_attention(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                       int64_t window, View<const PrefillTile, 1> tiles, const PagedRows& rows,
                       View<bf16, 3> out, StreamRef stream) {
  std::visit(
      [&](const auto& its) {
        launch_prefill_attention(q, its, sinks, scale, window, tiles, rows, out, stream);
      },
      kv);
}

}  // namespace fathom::kernels
