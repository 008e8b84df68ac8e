// out(t, h) = sum_j p(j) v(j) / (exp(sink(h)) + sum_j p(j)),  p(j) = exp(scale q(t, h) . k(j)); few rows t
//
// bytes   256 Hkv for each position in reach of a row (keys and values in bf16; 136 in FP8, 104 in K8V4, 72
//         in NVFP4), read once for all query heads of a key-value head; rows of one sequence share them in L2
// flops   4 x 64 x 8 Hkv for each: 8 query heads are the columns of an mma, even where a group has fewer
// limit   DRAM bandwidth; a window or a short context: latency
// idea    S^T = K Q^T has 16 keys as rows and the group's query heads as its 8 columns. K comes from its tile
//         by ldmatrix, Q stays in registers, and P is the second operand of O^T = V^T P^T once its 8 x 8
//         blocks are transposed in registers. Each warp works independently: it has every kWarps-th tile of
//         kKeys positions, TMA fetches the next ones into the warp's own pipeline, and the warp carries its
//         own maximum and sums. The warps of a CTA merge at the end, in shared memory. The CTAs that split a
//         row are a cluster (Flash-Decoding): the others store their partial result into the first CTA's
//         shared memory, and that CTA adds the sink, once. So there is no second kernel and no workspace, at
//         the price of at most 8 CTAs a row. Positions that this step does not write are fetched before the
//         previous kernel has ended. Fewer bits are dequantised between ldmatrix and the mma
//         (kernels/attention/kv_fragments.cuh).
// source  Dao et al., Flash-Decoding, 2023 (splits); kernels/attention/attention.h (the sink enters the final
//         sum only)
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/kv_fragments.cuh"

namespace fathom::kernels {
namespace decode {

inline constexpr int kGroup     = 8;   // columns of an mma: query heads of a key-value head, at most
inline constexpr int kDims      = 64;  // of a head
inline constexpr int kKeys      = 32;  // of a tile
inline constexpr int kMaxSplits = 8;   // CTAs that share a row, at most
inline constexpr float kLog2E   = 1.44269504f;
static_assert(kDims == kHeadDim);

template <class Kv>
struct DecodeAttention {
  const bf16* q;
  Kv kv;
  const float* sinks;
  float scale;  // times log2(e) and the factor of keys
  int window;
  PagedRows rows;
  bf16* out;
  int query_heads, group;
  int min_tiles_per_split;
  bool dependents_start_early;
};

// Partial result of a CTA, stored into the shared memory of the cluster's first CTA.
struct PartialResult {
  float out[kGroup][kDims];
  float4 max_and_sum[kGroup];  // of each head: .x and .y
};

// Online softmax state of a warp for a row and a key-value head. Lane 4 g + t has columns (heads) 2 t and
// 2 t + 1. Its sums of weights are over keys g and g + 8 of each 16; its outputs are rows g and g + 8 of
// value(m, i).
struct OnlineSoftmax {
  float max_score[2] = {-INFINITY, -INFINITY};  // of the scores so far, times log2(e)
  float sum[2]       = {};
  float out[4][4]    = {};
};

// A CTA has kWarps warps, each with a pipeline of kStages tiles; kCtasPerSm CTAs fit on a multiprocessor.
template <class KvFragments_, int kWarps_, int kCtasPerSm_>
struct TileShape {
  using KvFragments           = KvFragments_;
  static constexpr int kWarps = kWarps_, kKeys = KvFragments::kKeys, kStages = KvFragments::kStages,
                       kCtasPerSm     = kCtasPerSm_;
  static constexpr int kThreads       = 32 * kWarps;
  static constexpr int kStageBytes    = KvFragments::kBytes;
  static constexpr int kPipelineBytes = kStages * kStageBytes;  // of a warp
  static constexpr int kTilesPerPage  = static_cast<int>(kTile) / kKeys;
  static_assert(kKeys % 16 == 0 && kTile % kKeys == 0);

  static int shared_bytes(int splits) {
    return kWarps * kPipelineBytes + (splits - 1) * static_cast<int>(sizeof(PartialResult));
  }
};

// Adds a tile to the state. Positions `first` to `last` of the tile are in reach.
template <class KvFragments>
__device__ void attend_tile(OnlineSoftmax& state, const uint32_t (&q)[4][2], const char* stage, int first,
                            int last, float scale) {
  const int lane = threadIdx.x % 32;
  KvFragments tile(stage, lane);

  float s[kKeys / 16][4] = {};
#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t a[4];
      tile.key(m, k, a);
      ptx::mma_m16n8k16(s[m], a, q[k]);
    }
  if (first > 0 || last < kKeys - 1) {
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = m * 16 + lane / 4 + e / 2 * 8;
        if (key < first || key > last) s[m][e] = -INFINITY;
      }
  }

  float rescale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float max_score = -INFINITY;
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) max_score = fmaxf(max_score, fmaxf(s[m][h], s[m][2 + h]));
    max_score          = fmaxf(state.max_score[h], column_reduce_max(max_score) * scale);
    rescale[h]         = ptx::ex2_approx(state.max_score[h] - max_score);
    state.max_score[h] = max_score;
    state.sum[h] *= rescale[h];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) state.out[i][e] *= rescale[e % 2];

#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[m][e] = ptx::ex2_approx(s[m][e] * scale - state.max_score[e % 2]);
      state.sum[e % 2] += s[m][e];
    }
    const uint32_t p[2] = {ptx::movmatrix_trans(pack_bf16x2(s[m][0], s[m][1])),
                           ptx::movmatrix_trans(pack_bf16x2(s[m][2], s[m][3]))};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4];
      tile.value(m, i, a);
      ptx::mma_m16n8k16(state.out[i], a, p);
    }
  }
}

// Sums of several warps or CTAs for four dimensions of a head.
struct MergedOutput {
  float sum  = 0;
  float4 out = {};

  __device__ void add(float rescale, float other_sum, float4 other) {
    sum += rescale * other_sum;
    out.x += rescale * other.x;
    out.y += rescale * other.y;
    out.z += rescale * other.z;
    out.w += rescale * other.w;
  }
};

// Grid: (splits, key-value heads, T). The splits of a row and head form a cluster.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kCtasPerSm)
    decode_attention_kernel(const DecodeAttention<typename S::KvFragments::Kv> o) {
  using KvFragments = typename S::KvFragments;
  extern __shared__ __align__(128) char pipeline[];
  __shared__ uint64_t full[S::kWarps][S::kStages], partials_arrived;
  __shared__ float max_score[S::kWarps][kGroup], sum[S::kWarps][kGroup];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int split = blockIdx.x, head = blockIdx.y, t = blockIdx.z;
  const int splits = gridDim.x;
  bf16* const out  = o.out + (int64_t{t} * o.query_heads + head * o.group) * kDims;

  const int position = o.rows.positions.data()[t];
  if (position < 0) {  // padding
    if (split > 0) return;
    ptx::griddepcontrol_wait();
    for (int i = threadIdx.x; i < o.group * kDims / 4; i += S::kThreads)
      reinterpret_cast<uint2*>(out)[i] = {};
    return;
  }
  const int32_t* const pages =
      o.rows.pages.data() + o.rows.sequence.data()[t] * static_cast<int64_t>(o.rows.pages.stride(0));
  const int merged_head     = threadIdx.x / (kDims / 4);  // used at the end
  const float sink          = merged_head < o.group ? o.sinks[head * o.group + merged_head] * kLog2E : 0;
  const int first           = o.window > 0 ? max(0, position - o.window + 1) : 0;
  const int tiles           = position / S::kKeys + 1 - first / S::kKeys;
  const int tiles_per_split = max(o.min_tiles_per_split, (tiles + splits - 1) / splits);
  const int active_splits   = (tiles + tiles_per_split - 1) / tiles_per_split;
  if (split >= active_splits) return;
  const int begin =
      first / S::kKeys + split * tiles_per_split + warp;  // of this warp, which has every kWarps-th tile
  const int count =
      (min(tiles_per_split, tiles - split * tiles_per_split) - warp + S::kWarps - 1) / S::kWarps;

  PartialResult* const partials = reinterpret_cast<PartialResult*>(pipeline + S::kWarps * S::kPipelineBytes);
  if (lane == 0)
    for (uint64_t& barrier : full[warp]) ptx::mbarrier_init(&barrier, 1);
  if (threadIdx.x == 0 && split == 0 && active_splits > 1) {
    ptx::mbarrier_init(&partials_arrived, 1);
    ptx::mbarrier_arrive_expect_tx(&partials_arrived, (active_splits - 1) * o.group * (kDims * 4 + 16));
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();  // TMA sees the initialised barriers
  __syncwarp();
  if (active_splits > 1)
    ptx::cluster_barrier_arrive_relaxed();  // others may use partials_arrived once they have waited

  // The warp's i-th tile goes to stage i % kStages. Lane i % 32 has its address and starts the copies.
  char* const warp_pipeline                                = pipeline + warp * S::kPipelineBytes;
  decltype(KvFragments::source(o.kv, 0, 0, 0)) lane_source = nullptr;
  const auto fetch                                         = [&](int i) {
    if (i % 32 == 0 && i + lane < count) {
      const int tile = begin + (i + lane) * S::kWarps;
      lane_source = KvFragments::source(o.kv, pages[tile / S::kTilesPerPage], head, tile % S::kTilesPerPage);
    }
    if (lane != i % 32) return;
    const int stage = i % S::kStages;
    char* const to  = warp_pipeline + stage * S::kStageBytes;
    ptx::mbarrier_arrive_expect_tx(&full[warp][stage], S::kStageBytes);
    ptx::cp_async_bulk_load(to, lane_source, KvFragments::kCopyBytes, &full[warp][stage]);
    if constexpr (KvFragments::kCopies > 1)
      ptx::cp_async_bulk_load(to + KvFragments::kCopyBytes, lane_source + KvFragments::kCopyStride,
                                                                      KvFragments::kCopyBytes, &full[warp][stage]);
  };
  // The previous kernel writes some of the last T positions: they are fetched after the wait.
  int fetched                 = 0;
  const int written_positions = position + 1 - static_cast<int>(gridDim.z);
  while (fetched < min(S::kStages, count) &&
         (begin + fetched * S::kWarps + 1) * S::kKeys <= written_positions)
    fetch(fetched++);
  // Early is legal because a dependent waits as well. What it reads before its wait is not written by any
  // kernel of the chain: the projection that follows reads weights there, and prefill attention nothing. Its
  // wait returns when this grid is complete, hence not before this grid's wait has returned, which some CTA
  // of every row calls: so whatever ran before this grid is complete as well. The same holds for a kernel
  // that starts early behind that one, because all of them wait before they end. This grid's CTAs keep their
  // places: the dependent starts only when all of them have called or exited.
  if (o.dependents_start_early) ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  while (fetched < min(S::kStages, count)) fetch(fetched++);
  ptx::griddepcontrol_launch_dependents();

  // Column g of Q^T is query head g of the group.
  uint32_t q[4][2] = {};
  if (lane / 4 < o.group) {
    const bf16* row = o.q + (int64_t{t} * o.query_heads + head * o.group + lane / 4) * kDims;
    KvFragments::load_query(q, reinterpret_cast<const uint32_t*>(row), lane);
  }

  OnlineSoftmax state;
  for (int i = 0; i < count; ++i) {
    const int stage = i % S::kStages;
    const int at    = (begin + i * S::kWarps) * S::kKeys;
    const int from = max(0, first - at), last = min(S::kKeys - 1, position - at);
    ptx::mbarrier_wait(&full[warp][stage], i / S::kStages & 1);
    if (from > 0 || last < S::kKeys - 1) {
      // The cache may hold anything out of reach, and 0 times NaN is NaN.
      KvFragments::mask_values(warp_pipeline + stage * S::kStageBytes, from, last, lane);
      ptx::fence_proxy_async();  // orders the stores before the next TMA copy into the stage
      __syncwarp();              // lanes read what other lanes cleared
    }
    attend_tile<KvFragments>(state, q, warp_pipeline + stage * S::kStageBytes, from, last, o.scale);
    __syncwarp();  // all lanes have read the stage
    if (i + S::kStages < count) fetch(i + S::kStages);
  }

  // Merge of the warps: each stores its sums over its own pipeline stages. A head's row has 68 floats so that
  // the lanes 4 g + t, which store dimension g of head 2 t, access 32 different banks.
  constexpr int kRowStride = kDims + 4;
  static_assert(kGroup * kRowStride * 4 <= S::kPipelineBytes);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.sum[h] = column_reduce_sum(state.sum[h]);
    float* to    = reinterpret_cast<float*>(warp_pipeline) + (lane % 4 * 2 + h) * kRowStride +
                lane / 4 * KvFragments::kDimPerLane;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[KvFragments::dimension(i, 0)] = state.out[i][h];
      to[KvFragments::dimension(i, 1)] = state.out[i][2 + h];
    }
    if (lane < 4) {
      max_score[warp][lane * 2 + h] = state.max_score[h];
      sum[warp][lane * 2 + h]       = state.sum[h];
    }
  }
  __syncthreads();  // all sums are in shared memory
  if (active_splits > 1) ptx::cluster_barrier_wait();
  const int h = merged_head, d = threadIdx.x % (kDims / 4) * 4;
  static_assert(S::kThreads >= kGroup * kDims / 4);
  if (h >= o.group) return;
  MergedOutput cta;
  float cta_max = max_score[0][h];
#pragma unroll
  for (int w = 1; w < S::kWarps; ++w) cta_max = fmaxf(cta_max, max_score[w][h]);
#pragma unroll
  for (int w = 0; w < S::kWarps; ++w)
    cta.add(ptx::ex2_approx(max_score[w][h] - cta_max), sum[w][h],
            *reinterpret_cast<const float4*>(pipeline + w * S::kPipelineBytes + (h * kRowStride + d) * 4));

  if (split > 0) {
    const auto in_first_cta = [](const void* here) {
      return ptx::mapa_shared_cluster(ptx::shared_address(here), 0);
    };
    const uint32_t barrier = in_first_cta(&partials_arrived);
    PartialResult& partial = partials[split - 1];
    ptx::st_async_v4(in_first_cta(&partial.out[h][d]), cta.out, barrier);
    if (d == 0) ptx::st_async_v4(in_first_cta(&partial.max_and_sum[h]), {cta_max, cta.sum, 0, 0}, barrier);
    return;
  }
  if (active_splits > 1) ptx::mbarrier_wait(&partials_arrived, 0);
  float row_max = fmaxf(cta_max, sink);
  for (int p = 0; p < active_splits - 1; ++p) row_max = fmaxf(row_max, partials[p].max_and_sum[h].x);
  MergedOutput row;
  row.add(ptx::ex2_approx(cta_max - row_max), cta.sum, cta.out);
  for (int p = 0; p < active_splits - 1; ++p)
    row.add(ptx::ex2_approx(partials[p].max_and_sum[h].x - row_max), partials[p].max_and_sum[h].y,
            *reinterpret_cast<const float4*>(&partials[p].out[h][d]));
  const float rescale = KvFragments::kValueFactor / (row.sum + ptx::ex2_approx(sink - row_max));
  reinterpret_cast<uint2*>(out)[threadIdx.x] = {pack_bf16x2(row.out.x * rescale, row.out.y * rescale),
                                                pack_bf16x2(row.out.z * rescale, row.out.w * rescale)};
}

// Few rows and heads: one CTA on a multiprocessor. Many: several CTAs share one, so that some load while
// others compute.
template <class KvFragments>
using OneCtaPerSm = TileShape<KvFragments, 8, 1>;
template <class KvFragments>
using ThreeCtasPerSm = TileShape<KvFragments, 4, 3>;

// The `reach` positions of a row and head are split over a power of two CTAs. As long as the CTAs of all rows
// are at most half as many as multiprocessors (more gain nothing, because clusters then compete for places),
// a split needs only one tile for each warp. Beyond that it needs 1024 positions for each warp, some 20 us:
// so a long row does not delay a batch of short ones, and short rows are not split.
template <class S>
void launch(DecodeAttention<typename S::KvFragments::Kv> o, int64_t kv_heads, int64_t count, int64_t reach,
            StreamRef stream) {
  const auto min_tiles_per_split = [&](int splits) {
    return S::kWarps * (2 * splits * count * kv_heads <= multiprocessors() ? 1 : 1024 / S::kKeys);
  };
  int splits = 1;
  while (splits < kMaxSplits && int64_t{2} * splits * min_tiles_per_split(2 * splits) * S::kKeys <= reach)
    splits *= 2;
  o.min_tiles_per_split = min_tiles_per_split(splits);

  allow_shared_memory_once<decode_attention_kernel<S>>(S::shared_bytes(kMaxSplits));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(kv_heads),
                  static_cast<unsigned>(count));
  launch_with_pdl(decode_attention_kernel<S>, grid, dim3(S::kThreads),
                  static_cast<size_t>(S::shared_bytes(splits)), splits, stream, o);
}

template <class KvFragments>
void launch_decode_attention(View<const bf16, 3> q, const typename KvFragments::Kv& kv,
                             View<const float, 1> sinks, float scale, int64_t window, const PagedRows& rows,
                             int64_t longest, View<bf16, 3> out, StreamRef stream, Dependents dependents) {
  const int64_t count = q.extent(0), heads = q.extent(1);
  FATHOM_EXPECT(kv.heads > 0 && heads >= kv.heads && heads % kv.heads == 0 && heads / kv.heads <= kGroup,
                "decode_attention: query heads must be 1 to 8 times the key-value heads");
  FATHOM_EXPECT(q.extent(2) == kDims && q.contiguous() && out.contiguous() && out.extent(0) == count &&
                    out.extent(1) == heads && out.extent(2) == kDims,
                "decode_attention: q and out must be contiguous [T, Hq, 64]");
  FATHOM_EXPECT(sinks.extent(0) == heads && sinks.contiguous(),
                "decode_attention: each query head has a sink");
  FATHOM_EXPECT(rows.positions.extent(0) == count && rows.sequence.extent(0) == count &&
                    rows.positions.contiguous() && rows.sequence.contiguous() && rows.pages.stride(1) == 1,
                "decode_attention: positions and sequence must be [T], page tables rows of one piece");
  FATHOM_EXPECT(scale > 0 && window >= 0 && longest >= 0 && longest <= rows.pages.extent(1) * kTile,
                "decode_attention: pages must reach as far as the longest row");
  FATHOM_EXPECT(count <= 65535, "decode_attention: too many rows for its grid");
  if (count == 0) return;
  DecodeAttention<typename KvFragments::Kv> o = {};
  o.q                                         = q.data();
  o.kv                                        = kv;
  o.sinks                                     = sinks.data();
  o.scale                                     = scale * kLog2E * KvFragments::kKeyFactor;
  o.window                                    = static_cast<int>(window);
  o.rows                                      = rows;
  o.out                                       = out.data();
  o.query_heads                               = static_cast<int>(heads);
  o.group                                     = static_cast<int>(heads / kv.heads);
  o.dependents_start_early                    = dependents == Dependents::start_early;

  const int64_t reach = window > 0 ? std::min(window, longest) : longest;
  if (count * kv.heads <= multiprocessors() && reach > OneCtaPerSm<KvFragments>::kWarps * KvFragments::kKeys)
    launch<OneCtaPerSm<KvFragments>>(o, kv.heads, count, reach, stream);
  else
    launch<ThreeCtasPerSm<KvFragments>>(o, kv.heads, count, reach, stream);
}

}  // namespace decode
}  // namespace fathom::kernels
