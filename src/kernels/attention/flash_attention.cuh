// The kernel of flash_attention.h.
//
// A CTA has a tile of query rows of one head, a warpgroup 64 of them. The listed key blocks are loaded by TMA
// into a ring of mbarrier stages. There is no producer warp, which would take registers from those that
// compute: the first warps of the warpgroups take turns. q stays in registers, and so do the weights: the
// accumulator layout of scores is the A fragment layout of the next product (FlashAttention-2 and -3, Dao and
// others 2023, 2024). While the tensor cores add the last block's values, the warpgroup computes this block's
// exponentials.
//
// Weights are 2^(score - reference), with scores in units of log2. Any reference works as long as no weight
// overflows and none underflows beside one that counts, so a row's reference is raised to its maximum only
// where that is more than 2^kHeadroom higher (FlashAttention-4). With heads of 64 dimensions and plain
// scores, where exponentials take as long as products, a row that has a reference does not look for maxima in
// blocks that it sees whole: once a lane's weights of a block sum to kBound, its warp does the block again
// (as prefill_attention.cu, where the reference is the sink).
#pragma once

#include <cmath>
#include <type_traits>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/warp_reduce.cuh"
#include "cuda/wgmma.cuh"
#include "kernels/attention/flash_attention.h"
#include "kernels/gemm/pipeline_state.cuh"

namespace fathom::kernels {
namespace flash {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline constexpr float kMasked      = -INFINITY;
inline constexpr float kHeadroom    = 8;
inline constexpr float kBound       = 0x1p64f;
inline constexpr int kRowBytes      = 128;  // of a box: 64 columns, swizzled
inline constexpr uint32_t kAllLanes = 0xffffffff;

template <int kHeadSize_>
struct TileShape {
  static constexpr int kHeadSize   = kHeadSize_;
  static constexpr int kWarpgroups = attention_tile_rows(kHeadSize) / 64;
  static constexpr int kKeys       = attention_block_keys(kHeadSize);
  static constexpr int kBoxes      = kHeadSize / 64;
  static constexpr int kBoxBytes   = kKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kBoxes * kBoxBytes;  // keys, then values
  static constexpr int kStages     = 192 * 1024 / kStageBytes;
  // Warpgroups may be kStages - kLead - 1 blocks apart. A stage is released in the step behind its own.
  static constexpr int kLead    = kStages - (kHeadSize == 64 ? 4 : 2);
  static constexpr int kThreads = 128 * kWarpgroups;
  static_assert(kLead >= 1 && kLead + 2 <= kStages && kLead <= 32);
  // May maxima be left out? The block is done again with the fragments of q and keys of one box.
  static constexpr bool kFewMaxima = kHeadSize == 64;
};

template <class S>
struct KeyRing {
  alignas(1024) unsigned char stages[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
};

struct Parameters {
  const bf16* q;
  bf16* out;
  float* lse;
  const float* sinks;  // or null
  BlockMask blocks;
  int query_heads, group;
  int64_t lse_stride;
  float scale;  // of PlainScore to base 2
};

// Tells the compiler that a number is warp-uniform, so that it stays in uniform registers.
__device__ inline int warp_uniform(int x) { return __shfl_sync(kAllLanes, x, 0); }

// A thread's part of a warp's 16 rows: rows lane / 4 (h = 0) and lane / 4 + 8 (h = 1), columns 2 (lane % 4)
// and 2 (lane % 4) + 1 of every 8.
template <class S>
struct Rows {
  uint32_t q[S::kHeadSize / 16][4];  // A fragments
  float scores[S::kKeys / 2];        // [column / 8][h][2], over a block's keys; then their weights
  float out[S::kHeadSize / 2];       // the same layout, over dimensions
  uint32_t weights[S::kKeys / 16][4];
  float reference[2], sum[2];
  float times[2];      // what a change of the reference multiplies older weights by
  float block_sum[2];  // of a block's weights

  // The part of a column's number that a thread knows when it is compiled: column(i) + 2 (lane % 4).
  __device__ static constexpr int column(int i) { return i / 4 * 8 + i % 2; }

  // Raises references to the block's maxima where these are far higher. Is any of the warp's raised?
  __device__ bool raise_references(float to_log2) {
    bool raised = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = kMasked;
#pragma unroll
      for (int i = 2 * h; i < S::kKeys / 2; i += 4) highest = fmaxf(highest, fmaxf(scores[i], scores[i + 1]));
      highest          = quad_reduce_max(highest) * to_log2;
      const bool above = highest > reference[h] + kHeadroom;  // also where there is none yet: -infinity
      times[h]         = above ? ptx::ex2_approx(reference[h] - highest) : 1;
      if (above) reference[h] = highest;
      sum[h] *= times[h];
      raised |= above;
    }
    return __any_sync(kAllLanes, raised);
  }

  __device__ void rescale_out() {
#pragma unroll
    for (int i = 0; i < S::kHeadSize / 2; ++i) out[i] *= times[i / 2 % 2];
  }

  // Turns scores into weights. False if the weights of some lane exceed kBound.
  __device__ bool exponentiate(float to_log2) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float from = reference[h] == kMasked ? 0 : reference[h];  // all of the scores are masked
      block_sum[h]     = 0;
#pragma unroll
      for (int i = 2 * h; i < S::kKeys / 2; i += 4) {
        scores[i]     = ptx::ex2_approx(__fmaf_rn(scores[i], to_log2, -from));
        scores[i + 1] = ptx::ex2_approx(__fmaf_rn(scores[i + 1], to_log2, -from));
        block_sum[h] += scores[i] + scores[i + 1];
      }
    }
    return __all_sync(kAllLanes, block_sum[0] < kBound && block_sum[1] < kBound);  // false for infinity too
  }

  __device__ void pack_weights() {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i)
      weights[i / 4][i % 4] = pack_bf16x2(scores[2 * i], scores[2 * i + 1]);
  }

  // For rows with a lane whose weights exceeded kBound: the block's maximum becomes their reference. The
  // scores have been overwritten, so mma.sync recomputes them from the block's keys (a shared address), 8 at
  // a time, once for the maximum and once for the weights. Rare. The other rows keep their weights.
  __device__ void repeat_block(uint32_t keys, float to_log2) {
    const int lane              = threadIdx.x % 32;
    const auto recompute_scores = [&](float(&recomputed)[4], int i) {
#pragma unroll
      for (float& x : recomputed) x = 0;
#pragma unroll
      for (int k = 0; k < S::kHeadSize / 16; k += 2) {
        uint32_t m[4];
        const int row = lane % 8, piece = 2 * k + lane / 8;
        ptx::ldmatrix_x4(m, keys + (8 * i + row) * kRowBytes + (piece ^ row) * 16);
        ptx::mma_m16n8k16(recomputed, q[k], {m[0], m[1]});
        ptx::mma_m16n8k16(recomputed, q[k + 1], {m[2], m[3]});
      }
#pragma unroll
      for (float& x : recomputed) x *= to_log2;
    };
    float highest[2] = {kMasked, kMasked}, recomputed[4];
#pragma unroll 1
    for (int i = 0; i < S::kKeys / 8; ++i) {
      recompute_scores(recomputed, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) highest[j / 2] = fmaxf(highest[j / 2], recomputed[j]);
    }
    bool exceeded[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      exceeded[h] = (__ballot_sync(kAllLanes, !(block_sum[h] < kBound)) >> lane / 4 * 4 & 15) != 0;
      highest[h]  = quad_reduce_max(highest[h]);
      times[h]    = exceeded[h] ? ptx::ex2_approx(reference[h] - highest[h]) : 1;
      sum[h] *= times[h];
      if (!exceeded[h]) continue;
      reference[h] = highest[h];
      block_sum[h] = 0;
    }
    rescale_out();
#pragma unroll
    for (int i = 0; i < S::kKeys / 8; ++i) {
      recompute_scores(recomputed, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!exceeded[h]) continue;
        const float first             = ptx::ex2_approx(recomputed[2 * h] - reference[h]);
        const float second            = ptx::ex2_approx(recomputed[2 * h + 1] - reference[h]);
        weights[i / 2][i % 2 * 2 + h] = pack_bf16x2(first, second);
        block_sum[h] += first + second;
      }
    }
  }

  // The products of a stage, whose keys or values begin at the operand `at`: a part of a group.
  __device__ void multiply_keys(uint64_t at) {
#pragma unroll
    for (int k = 0; k < S::kHeadSize / 16; ++k)
      ptx::wgmma(scores, q[k], ptx::advance_descriptor(at, k / 4 * S::kBoxBytes + k % 4 * 32), k > 0);
  }
  // One product for all dimensions. (Two of 64 for heads of 128 took 1.13 times as long at 16384 tokens.)
  __device__ void add_values(uint64_t at) {
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k)
      ptx::wgmma<ptx::Major::mn>(out, weights[k], ptx::advance_descriptor(at, k * 2048), true);
  }

  // Around products: the compiler moves no access to these registers across.
  __device__ void fence_out() { ptx::warpgroup_fence_operand(out); }
  __device__ void fence_weights() {
#pragma unroll
    for (auto& fragment : weights) ptx::warpgroup_fence_operand(fragment);
  }
};

// CTA (x, y): head x, tile y. So the tiles with the most blocks, which are first, begin first in all heads.
// (With tiles in x, 2048 causal tokens took 1.4 times as long, 16384 with heads of 64 1.08 times.) And the
// heads of a group read the same keys at the same time.
template <class S, class Mask, class Score>
__global__ void __launch_bounds__(S::kThreads, 1)
    flash_attention_kernel(const __grid_constant__ CUtensorMap keys,
                           const __grid_constant__ CUtensorMap values, const __grid_constant__ Parameters a,
                           const Mask mask, const Score score) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& ring            = *reinterpret_cast<KeyRing<S>*>(memory);
  constexpr bool kPlain = std::is_same_v<Score, PlainScore>, kFewMaxima = S::kFewMaxima && kPlain;
  const int warp = warp_uniform(threadIdx.x / 32);
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&keys);
    ptx::prefetch_tensormap(&values);
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&ring.full[s], 1);
      ptx::mbarrier_init(&ring.empty[s], S::kThreads / 32);
    }
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
  }
  __syncthreads();  // and so do the other threads

  const AttentionTile tile = a.blocks.tiles(blockIdx.y);
  const int steps          = a.blocks.counts(blockIdx.y);
  const uint32_t* blocks   = &a.blocks.blocks(blockIdx.y, 0);
  const auto first_key     = [](uint32_t block) { return static_cast<int>(block & 0xffffff) * S::kKeys; };
  const int head = static_cast<int>(blockIdx.x), kv_head = head / a.group;

  // Step n computes the block of blocks[n], in stage n % kStages. Lanes of warp 0 load the first blocks, one
  // each. In step n the first warp of warpgroup n % kWarpgroups loads the block of step n + kLead.
  const auto load = [&](int n) {
    const int row = tile.first_key + first_key(blocks[n]), stage = n % S::kStages;
    uint64_t* full = &ring.full[stage];
    ptx::mbarrier_arrive_expect_tx(full, S::kStageBytes);
    unsigned char* to = ring.stages[stage];
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box, to += S::kBoxBytes)
      ptx::cp_async_bulk_tensor_load(to, &keys, kv_head, row, 64 * box, full);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box, to += S::kBoxBytes)
      ptx::cp_async_bulk_tensor_load(to, &values, kv_head, row, 64 * box, full);
  };
  if (warp == 0 && lane < min(steps, S::kLead)) load(lane);
  const auto load_ahead = [&](int n) {
    const int to = n + S::kLead;
    if (warp != n % S::kWarpgroups * 4 || to >= steps) return;
    if (to >= S::kStages)
      ptx::mbarrier_wait(&ring.empty[to % S::kStages], (to / S::kStages - 1) & 1);  // released by all warps
    if (lane == 0) load(to);
  };

  const int warpgroup = warp / 4, row = warp * 16 + lane / 4;  // of the tile; and row + 8
  // Rows behind the sequence's end see what its last one sees, and are not stored.
  const auto position = [&, of_row = tile.position + row](int h) {
    return min(of_row + 8 * h, tile.keys - 1);
  };
  Rows<S> rows;
#pragma unroll
  for (int i = 0; i < S::kHeadSize / 4; ++i) {
    const int r = row + i % 2 * 8, d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
    const int64_t place  = int64_t{(tile.row + r) * a.query_heads + head} * S::kHeadSize + d;
    rows.q[i / 4][i % 4] = r < tile.rows ? *reinterpret_cast<const uint32_t*>(a.q + place) : 0;
  }
  // The sink is a row's first score, and has no value.
  const bool has_sink = a.sinks != nullptr;
  rows.reference[0] = rows.reference[1] = has_sink ? a.sinks[head] * kLog2E : kMasked;
  rows.sum[0] = rows.sum[1] = has_sink && lane % 4 == 0 ? 1 : 0;
#pragma unroll
  for (float& x : rows.out) x = 0;
#pragma unroll
  for (auto& fragment : rows.weights)
#pragma unroll
    for (uint32_t& pair : fragment) pair = 0;

  const float to_log2     = kPlain ? a.scale : 1;  // other scores are to base 2 before their maximum is taken
  const uint64_t operands = ptx::smem_descriptor_128b(ptx::shared_address(ring.stages), S::kBoxBytes);
  const auto keys_of   = [&](int stage) { return ptx::advance_descriptor(operands, stage * S::kStageBytes); };
  const auto values_of = [&](int stage) {
    return ptx::advance_descriptor(operands, stage * S::kStageBytes + S::kStageBytes / 2);
  };
  PipelineState<S::kStages> state;
  int unfinished   = -1;     // the stage whose values are not added yet
  bool has_maximum = false;  // every row has a reference that a maximum has been

  // Adds the last block's values, and waits.
  const auto finish_block = [&] {
    rows.fence_out();
    rows.fence_weights();
    ptx::wgmma_fence();
    rows.add_values(values_of(warp_uniform(unfinished)));
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    rows.fence_out();
    rows.fence_weights();
  };

  for (int n = 0; n < steps; ++n, state.next()) {
    const uint32_t block = blocks[n];
    const auto kind =
        static_cast<BlockKind>(warp_uniform(static_cast<int>(block >> (24 + 2 * warpgroup) & 3)));
    ptx::mbarrier_wait(&ring.full[state.stage], state.parity);  // also of a block that is skipped: its stage
                                                                // may not be released before it was filled
    if (kind == BlockKind::empty) {
      // Nothing of this block. The block before is finished first, so that no stage is kept while a
      // load waits for it.
      if (unfinished >= 0) {
        finish_block();
        if (lane == 0) ptx::mbarrier_arrive(&ring.empty[unfinished]);
        unfinished = -1;
#pragma unroll
        for (auto& fragment : rows.weights)
#pragma unroll
          for (uint32_t& pair : fragment) pair = 0;
      }
      if (lane == 0) ptx::mbarrier_arrive(&ring.empty[state.stage]);
      load_ahead(n);
      continue;
    }

    ptx::warpgroup_fence_operand(rows.scores);
    rows.fence_out();
    rows.fence_weights();
    ptx::wgmma_fence();
    rows.multiply_keys(keys_of(state.stage));
    ptx::wgmma_commit_group();
    // Without an unfinished block the weights are zero, and any values do.
    rows.add_values(values_of(warp_uniform(unfinished >= 0 ? unfinished : state.stage)));
    ptx::wgmma_commit_group();
    load_ahead(n);
    ptx::wgmma_wait_group<1>();  // scores are there, values are still being added
    ptx::warpgroup_fence_operand(rows.scores);

    const int key = first_key(block) + lane % 4 * 2;  // of the thread's first column
    if constexpr (!kPlain) {
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; ++i) {
        const Pair pair{position(i / 2 % 2), key + rows.column(i), tile.first_key, tile.sequence};
        rows.scores[i] = kLog2E * score(rows.scores[i] * a.scale, head, pair.q - pair.k);
        if (i % 8 == 7)
          asm volatile("" ::: "memory");  // a functor's loads of all columns take too many registers
      }
    }
    if (kind == BlockKind::partial) {
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; ++i) {
        const Pair pair{position(i / 2 % 2), key + rows.column(i), tile.first_key, tile.sequence};
        if (pair.k >= tile.keys || !mask(pair)) rows.scores[i] = kMasked;
      }
    }
    if (!kFewMaxima || kind == BlockKind::partial || !has_maximum) {
      if (rows.raise_references(to_log2)) {  // rare, as kHeadroom is
        ptx::wgmma_wait_group<0>();
        rows.fence_out();
        rows.rescale_out();
      }
    }
    has_maximum |= kind == BlockKind::full;
    const bool fits = rows.exponentiate(to_log2);

    ptx::wgmma_wait_group<0>();
    rows.fence_out();
    rows.fence_weights();  // the products read them until now
    if (unfinished >= 0 && lane == 0) ptx::mbarrier_arrive(&ring.empty[unfinished]);
    rows.pack_weights();
    if constexpr (kFewMaxima)
      if (!fits) rows.repeat_block(ptx::shared_address(ring.stages[state.stage]), to_log2);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] += rows.block_sum[h];
    unfinished = state.stage;
  }
  if (unfinished >= 0) finish_block();

  const AttentionTile done = a.blocks.tiles(blockIdx.y);  // read again rather than kept in registers
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = quad_reduce_sum(rows.sum[h]), inverse = sum > 0 ? 1 / sum : 0;
    const int r = row + 8 * h;
    if (r >= done.rows) continue;
    bf16* to = a.out + int64_t{(done.row + r) * a.query_heads + head} * S::kHeadSize + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::kHeadSize / 8; ++i)
      *reinterpret_cast<uint32_t*>(to + 8 * i) =
          pack_bf16x2(rows.out[4 * i + 2 * h] * inverse, rows.out[4 * i + 2 * h + 1] * inverse);
    if (lane % 4 == 0)
      a.lse[head * a.lse_stride + done.row + r] = sum > 0 ? kLn2 * (rows.reference[h] + log2f(sum)) : kMasked;
  }
}

// Boxes of a block's keys and 64 dimensions of a head, of k or v.
template <class S>
CUtensorMap key_boxes(View<const bf16, 3> k) {
  const int64_t head = k.extent(2) * static_cast<int64_t>(sizeof(bf16));
  return tensor_map(
      k.data(), DType::bf16,
      {{k.extent(1), head, 1}, {k.extent(0), k.extent(1) * head, S::kKeys}, {k.extent(2), 2, 64}},
      Swizzle::bytes_128);
}

}  // namespace flash

template <int kHeadSize, class Mask, class Score>
void flash_attention(const RaggedAttention& a, const BlockMask& blocks, const Mask& mask, const Score& score,
                     StreamRef stream) {
  using S                 = flash::TileShape<kHeadSize>;
  constexpr auto* kKernel = flash::flash_attention_kernel<S, Mask, Score>;
  const int64_t rows = a.q.extent(0), heads = a.q.extent(1), kv_heads = a.k.extent(1);
  FATHOM_EXPECT(a.q.extent(2) == kHeadSize && a.k.extent(2) == kHeadSize && a.v.extent(2) == kHeadSize,
                "flash_attention: q, k and v must have the head size that the kernel was compiled for");
  FATHOM_EXPECT(a.q.contiguous() && a.k.contiguous() && a.v.contiguous() && a.out.contiguous(),
                "flash_attention: q, k, v and out must be contiguous");
  FATHOM_EXPECT(a.v.extent(0) == a.k.extent(0) && a.v.extent(1) == kv_heads,
                "flash_attention: v must be like k");
  FATHOM_EXPECT(a.out.extent(0) == rows && a.out.extent(1) == heads && a.out.extent(2) == kHeadSize,
                "flash_attention: out must be like q");
  FATHOM_EXPECT(a.lse.extent(0) == heads && a.lse.extent(1) == rows && a.lse.stride(1) == 1,
                "flash_attention: lse must be [Hq, T]");
  FATHOM_EXPECT(kv_heads > 0 && heads % kv_heads == 0,
                "flash_attention: the query heads must be a multiple of the key-value heads");
  FATHOM_EXPECT(a.sinks.data() == nullptr || a.sinks.extent(0) == heads,
                "flash_attention: each query head has a sink, or none has");
  FATHOM_EXPECT(a.scale > 0, "flash_attention: scale must be positive");
  FATHOM_EXPECT(rows * heads <= INT32_MAX, "flash_attention: q has more rows than fit into 31 bits");
  FATHOM_EXPECT(blocks.tiles.extent(0) <= 65535, "flash_attention: a grid has at most 65535 tiles in y");
  if (blocks.tiles.extent(0) == 0 || heads == 0) return;
  allow_shared_memory_once<kKernel>(sizeof(flash::KeyRing<S>));
  // Without keys nothing is loaded, but a tensor map has at least one row.
  const View<const bf16, 3> one_row(a.q.data(), {1, kv_heads, kHeadSize});
  const bool any = a.k.extent(0) > 0;
  const flash::Parameters parameters{
      .q           = a.q.data(),
      .out         = a.out.data(),
      .lse         = a.lse.data(),
      .sinks       = a.sinks.data(),
      .blocks      = blocks,
      .query_heads = static_cast<int>(heads),
      .group       = static_cast<int>(heads / kv_heads),
      .lse_stride  = a.lse.stride(0),
      .scale       = std::is_same_v<Score, PlainScore> ? a.scale * flash::kLog2E : a.scale};
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(blocks.tiles.extent(0)));
  kKernel<<<grid, S::kThreads, sizeof(flash::KeyRing<S>), stream>>>(flash::key_boxes<S>(any ? a.k : one_row),
                                                                    flash::key_boxes<S>(any ? a.v : one_row),
                                                                    parameters, mask, score);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::kernels
