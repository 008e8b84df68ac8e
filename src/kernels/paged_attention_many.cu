// out = softmax(scale q K^T, sink) V over positions in reach        bf16, sums in fp32
//
// bytes   256 Hq a row for q and out; 256 Hkv for each position in reach, for every tile of 64 rows, mostly
//         from L2
// flops   256 Hq for each pair of a row and a position in its reach
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either. Long
//         prompts come to 60 % of that; short ones and windows are as fast as blocks begin and end
// idea    a warpgroup has the same 64 rows of one query head, the warpgroups of a block neighbouring heads of
//         the same key-value head, so that a page that was loaded serves all of them. q stays in registers,
//         and so do the weights: scores lie as fragments of the next product do (FlashAttention-2 and -3, Dao
//         and others 2023, 2024). While the tensor cores add the last page's values and multiply the next
//         page's keys, the warpgroup takes exponentials of this one's scores.
//
// A page in FP8 becomes one in bf16 in shared memory, a part of it by every warp, a step before its scores
// are wanted, while the tensor cores add values. Keys are multiplied then, where else they go first:
// unpacking wants the registers that scores will take. Sums are the same.
//
// There is no warp for copies alone: 4 warpgroups want 128 registers a thread, all there are. The first warps
// of the warpgroups take turns in loading a page far ahead. Nor is a row's maximum looked for: see kBound.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"
#include "core/wgmma.cuh"
#include "kernels/fp8_kv.cuh"
#include "kernels/paged_attention_many.h"

namespace fathom::kernels {
namespace {

constexpr int kPage          = kTile;
constexpr int kPiece         = 16;  // bytes: a vector, and for so many an operand's descriptor goes up by one
constexpr int kRowPieces     = kHeadDim * sizeof(bf16) / kPiece;
constexpr int kPageBytes     = 2 * kPage * kRowPieces * kPiece;  // keys, then values: adjacent in the cache
constexpr uint32_t kAllLanes = 0xffffffff;
constexpr float kLog2E       = 1.4426950408889634f;
constexpr float kUnseen      = -INFINITY;

// A weight is 2^(score - top), with scores in units of log2. Any top serves while no weight leaves the range
// of numbers and they do not all vanish beside one that counts. So a row's top is its sink, whose own weight
// is then 1, and not its maximum: until a lane's weights of a page come to 2^64, and Rows::renew takes the
// page's maximum. Weights that large are as exact as others in fp32 and bf16; those that vanish, below
// 2^-126, do not count beside the sink. (With maxima 8192 positions took 1140 us instead of 880.)
constexpr float kBound = 0x1p64f;

// A number that all lanes have: what follows from it stays in uniform registers if the compiler knows.
__device__ int of_warp(int x) { return __shfl_sync(kAllLanes, x, 0); }

template <class Kv>
struct Prompt {
  const bf16* q;
  bf16* out;
  Kv kv;
  const float* sinks;
  const PromptTile* tiles;
  const int32_t* positions;
  const int32_t* pages;
  int pages_stride, query_heads, group, window;
  float scale;
};

// Pages in shared memory, those that the copy engine brings in a ring of kStages: in bf16 they are operands.
template <class Kv, int kStages>
struct Pages {
  static constexpr int kOperands = kStages, kCopied = kPageBytes;

  alignas(1024) unsigned char pages[kStages][kPageBytes];
  uint64_t full[kStages], empty[kStages];

  __device__ unsigned char* copied(int stage) { return pages[stage]; }
  __device__ static const void* source(const Kv& kv, int page, int head) { return kv.keys(page, head); }
};

// In FP8 they are unpacked to operands. The operand of step n takes the place of that of step n - 4. Whoever
// unpacks it, in step n - 1, has seen `ready` of that step: all warps were in step n - 2 by then, and had
// done with values of step n - 4.
template <int kStages>
struct Pages<Fp8KvTiles, kStages> {
  static constexpr int kOperands = 4, kCopied = Fp8KvTiles::kPageBytes;

  alignas(1024) unsigned char pages[kOperands][kPageBytes];
  alignas(128) unsigned char packed[kStages][kCopied];
  uint64_t full[kStages], ready[kOperands];

  __device__ unsigned char* copied(int stage) { return packed[stage]; }
  __device__ static const void* source(const Fp8KvTiles& kv, int page, int head) {
    return kv.strips(page, head);
  }
};

// kWarpgroups query heads of a block; kBlocks of them on a multiprocessor.
template <class KvOf, int kWarpgroups, int kStages, int kAhead, int kBlocks>
struct Shape {
  using Kv                      = KvOf;
  using Shared                  = Pages<Kv, kStages>;
  static constexpr bool kFp8    = std::is_same_v<Kv, Fp8KvTiles>;
  static constexpr int kThreads = 128 * kWarpgroups;
  static constexpr int kHeads = kWarpgroups, kRing = kStages, kLead = kAhead, kResident = kBlocks;
  // The page kAhead on takes the place of one that every warpgroup has left, kStages - kAhead steps ago.
  static_assert(kAhead < kStages && kAhead <= 32);
};
template <class Kv>
using FourHeads = Shape<Kv, 4, 12, 8, 1>;
// Copies more, but one block computes while the other begins or ends.
template <class Kv>
using TwoHeads = Shape<Kv, 2, std::is_same_v<Kv, Fp8KvTiles> ? 5 : 6, 4, 2>;

__device__ uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// What a thread's rows see of a page.
struct Reach {
  int last, window;  // its row h = 0 sees columns last - window + 1 .. last, counted from the thread's first

  __device__ bool holds(int h, int column) const {
    const int behind = last + 8 * h - column;
    return behind >= 0 && behind < window;
  }
};

// A thread's part of a warp's 16 rows: rows lane / 4 (h = 0) and lane / 4 + 8 (h = 1), columns 2 (lane % 4)
// and the next of every 8.
struct Rows {
  float scores[32];  // [column / 8][h][2], of a page's positions; then their weights
  float out[32];     // the same of dimensions
  uint32_t weights[4][4] = {};
  float top[2], sum[2];
  float added[2];  // weights of a page

  __device__ void hide(const Reach& reach) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!reach.holds(i / 2 % 2, i / 4 * 8 + i % 2)) scores[i] = kUnseen;
  }

  // Scores become weights. False if there are lanes with too much of them.
  __device__ bool weigh(float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      added[h] = 0;
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) {
        scores[i]     = ptx::exp2_approximate(__fmaf_rn(scores[i], scale, -top[h]));
        scores[i + 1] = ptx::exp2_approximate(__fmaf_rn(scores[i + 1], scale, -top[h]));
        added[h] += scores[i] + scores[i + 1];
      }
    }
    return __all_sync(kAllLanes, added[0] < kBound && added[1] < kBound);  // or one is infinite
  }

  // For rows of which a lane's weights added up to too much: the page's maximum becomes their top. The scores
  // are lost; mma.sync makes them again from the page's keys, 8 positions at a time, once for the maximum and
  // once for the weights. Rare. The other rows keep what they have.
  __device__ void renew(const uint32_t (&q)[4][4], uint32_t keys, const Reach& reach, float scale) {
    const int lane         = threadIdx.x % 32;
    const auto eight_again = [&](float(&again)[4], int i) {
#pragma unroll
      for (float& x : again) x = 0;
#pragma unroll
      for (int k = 0; k < 4; k += 2) {
        uint32_t m[4];
        const int row = lane % 8, piece = 2 * k + lane / 8;
        ptx::load_matrices(m, keys + (8 * i + row) * kRowPieces * kPiece + (piece ^ row) * kPiece);
        ptx::mma_16x8x16(again, q[k], {m[0], m[1]});
        ptx::mma_16x8x16(again, q[k + 1], {m[2], m[3]});
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) again[j] = reach.holds(j / 2, 8 * i + j % 2) ? again[j] * scale : kUnseen;
    };
    float highest[2] = {kUnseen, kUnseen}, again[4];
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      eight_again(again, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) highest[j / 2] = fmaxf(highest[j / 2], again[j]);
    }
    bool outgrown[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      outgrown[h] = (__ballot_sync(kAllLanes, !(added[h] < kBound)) >> lane / 4 * 4 & 15) != 0;
      highest[h]  = fmaxf(highest[h], __shfl_xor_sync(kAllLanes, highest[h], 1));
      highest[h]  = fmaxf(highest[h], __shfl_xor_sync(kAllLanes, highest[h], 2));
      if (!outgrown[h]) continue;
      const float change = ptx::exp2_approximate(top[h] - highest[h]);
      sum[h] *= change;
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) {
        out[i] *= change;
        out[i + 1] *= change;
      }
      top[h]   = highest[h];
      added[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      eight_again(again, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!outgrown[h]) continue;
        const float first             = ptx::exp2_approximate(again[2 * h] - top[h]);
        const float second            = ptx::exp2_approximate(again[2 * h + 1] - top[h]);
        weights[i / 2][i % 2 * 2 + h] = packed(first, second);
        added[h] += first + second;
      }
    }
  }
};

// A row's 64 numbers are with 4 lanes, of each 8 columns 2 with each; to[8 i + t], one 16-byte vector of 8
// columns, is to be stored by lane t of them for i = 0, 1. A 4 x 4 transposition in two exchanges.
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

// A stage of the ring, and the parity of its phase.
struct Place {
  int stage = 0, phase = 0;

  __device__ void advance(int stages) {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Block (x, y): tile gridDim.x - 1 - x, heads y kHeads .. + kHeads.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kResident)
    attend_kernel(const __grid_constant__ Prompt<typename S::Kv> a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& ring          = *reinterpret_cast<typename S::Shared*>(memory);
  constexpr int kRing = S::kRing;
  const int warp      = of_warp(threadIdx.x / 32);
  const int lane = threadIdx.x % 32, warpgroup = warp / 4;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      ptx::mbarrier_init(&ring.full[i], 1);
      if constexpr (!S::kFp8) ptx::mbarrier_init(&ring.empty[i], S::kThreads / 32);
    }
    if constexpr (S::kFp8)
      for (uint64_t& ready : ring.ready) ptx::mbarrier_init(&ready, S::kThreads / 32);
    ptx::fence_proxy_async();  // the copy engine sees the barriers as they are now
  }
  __syncthreads();  // and so do the other threads
  ptx::wait_for_previous();

  const PromptTile tile = a.tiles[gridDim.x - 1 - blockIdx.x];
  if (tile.rows == 0) return;
  const int begin = a.positions[tile.row], end = begin + tile.rows;
  const int head = blockIdx.y * S::kHeads + warpgroup, kv_head = blockIdx.y * S::kHeads / a.group;
  const int first_page = max(0, begin - a.window + 1) / kPage, steps = (end - 1) / kPage + 1 - first_page;
  const int pages_at = tile.sequence * a.pages_stride + first_page;

  // Step n is about page first_page + n, in stage n % kRing, in that stage's phase n / kRing. The first ones
  // are loaded by a lane each; then the first warp of warpgroup n % kHeads loads the page of step n + kLead,
  // whose number is one of 32 that its lanes have fetched.
  const auto load = [&](int n, int page) {
    ptx::mbarrier_arrive_expect_tx(&ring.full[n % kRing], ring.kCopied);
    ptx::bulk_load(ring.copied(n % kRing), ring.source(a.kv, page, kv_head), ring.kCopied,
                   &ring.full[n % kRing]);
  };
  if (warp == 0 && lane < min(steps, S::kLead)) load(lane, a.pages[pages_at + lane]);
  int fetched           = 0;
  const auto load_ahead = [&](int n) {
    const int to = n + S::kLead, turn = n / S::kHeads % 32;
    if (warp != n % S::kHeads * 4 || to >= steps) return;
    if (turn == 0) fetched = a.pages[pages_at + min(to + lane * S::kHeads, steps - 1)];
    const int page = __shfl_sync(kAllLanes, fetched, turn);
    if constexpr (!S::kFp8)  // there `ready` of this step has said so: what it was about was unpacked before
      if (to >= kRing)
        ptx::mbarrier_wait(&ring.empty[to % kRing], (to / kRing - 1) & 1);  // left by all warps
    if (lane == 0) load(to, page);
  };
  const auto wait_for_page = [&](const Place& at, bool last) {
    if constexpr (S::kFp8) return ptx::mbarrier_wait(&ring.ready[at.stage], at.phase);
    ptx::mbarrier_wait(&ring.full[at.stage], at.phase);
    if (!last || end % kPage == 0) return;
    // The last page's end is not written yet. Weights there are 0, but 0 times NaN is not.
    for (int i = threadIdx.x; i < kPage * kRowPieces; i += S::kThreads)
      if (i >= end % kPage * kRowPieces)
        reinterpret_cast<uint4*>(ring.pages[at.stage] + kPageBytes / 2)[i] = uint4{};
    ptx::fence_proxy_async();  // the tensor cores see the zeros
    __syncthreads();           // of all threads
  };

  // The page of step n becomes an operand, the end of the last one's values, which is not written yet, zeros.
  const auto unpack = [&](int n) {
    if constexpr (S::kFp8) {
      if (n >= steps) return;
      constexpr int kOperands = S::Shared::kOperands;
      ptx::mbarrier_wait(&ring.full[n % kRing], n / kRing & 1);
      unpack_fp8_page<S::kThreads>(ring.packed[n % kRing], ring.pages[n % kOperands],
                                   end - (first_page + n) * kPage);
      ptx::fence_proxy_async();  // the tensor cores see what was stored
      __syncwarp();              // by all lanes
      if (lane == 0) ptx::mbarrier_arrive(&ring.ready[n % kOperands]);
    }
  };

  const int row = warp % 4 * 16 + lane / 4;  // and row + 8
  uint32_t q[4][4];                          // the warp's rows as an operand; zeros behind the tile's end
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
  rows.top[0] = rows.top[1] = a.sinks[head] * kLog2E;
  rows.sum[0] = rows.sum[1] = lane % 4 == 0 ? 1 : 0;  // the sink counts once
#pragma unroll
  for (float& x : rows.out) x = 0;
  const uint64_t ring_operand = ptx::swizzled_operand(ptx::shared_address(ring.pages));
  const auto multiply_keys    = [&](int stage) {
    const uint64_t keys = ring_operand + stage * (kPageBytes / kPiece);
#pragma unroll
    for (int k = 0; k < 4; ++k) ptx::wgmma(rows.scores, q[k], keys + k * 32 / kPiece, k > 0);
    ptx::wgmma_commit();
  };
  const auto add_values = [&](int stage) {
    const uint64_t values = ring_operand + stage * (kPageBytes / kPiece) + kPageBytes / 2 / kPiece;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::wgmma<ptx::Major::mn>(rows.out, rows.weights[k], values + k * 2048 / kPiece, true);
  };

  Place at;
  int before = 0;
  unpack(0);
  for (int n = 0; n < steps; ++n) {
    wait_for_page(at, n == steps - 1);
    if constexpr (!S::kFp8) ptx::settle(rows.scores);
    ptx::settle(rows.out);
    ptx::wgmma_fence();
    if constexpr (S::kFp8) {
      add_values(before);  // in the first step zeros: the weights are
      ptx::wgmma_commit();
      unpack(n + 1);  // in the registers where scores are to be
      ptx::forget(rows.scores);
      ptx::wgmma_fence();
      multiply_keys(at.stage);
      load_ahead(n);
      ptx::wgmma_wait<0>();
#pragma unroll
      for (auto& of_step : rows.weights) ptx::settle(of_step);  // they were in use until now
    } else {
      multiply_keys(at.stage);
      add_values(before);
      ptx::wgmma_commit();
      load_ahead(n);
      ptx::wgmma_wait<1>();
    }
    ptx::settle(rows.scores);
    const int key = (first_page + n) * kPage;
    if (key + kPage - 1 > warp_begin || key <= warp_begin + 15 - a.window)  // else all of it is in reach
      rows.hide(reach_from(key));
    const bool fits = rows.weigh(a.scale);
    ptx::wgmma_wait<0>();
    ptx::settle(rows.out);
    ptx::settle(rows.scores);  // the weights' registers were in use until now
    if constexpr (!S::kFp8)
      if (n > 0 && lane == 0) ptx::mbarrier_arrive(&ring.empty[before]);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      rows.weights[i / 4][i % 4] = packed(rows.scores[2 * i], rows.scores[2 * i + 1]);
    if (!fits) rows.renew(q, ptx::shared_address(ring.pages[at.stage]), reach_from(key), a.scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.sum[h] += rows.added[h];
    before = at.stage;
    at.advance(S::Shared::kOperands);
  }
  ptx::let_next_begin();
  ptx::settle(rows.out);
  ptx::wgmma_fence();
  add_values(before);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::settle(rows.out);

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = rows.sum[h];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const float share = __fdividef(1, total);
    uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      pairs[i] = packed(rows.out[4 * i + 2 * h] * share, rows.out[4 * i + 2 * h + 1] * share);
    bf16* to = a.out + int64_t{(tile.row + row + 8 * h) * a.query_heads + head} * kHeadDim;
    store_row(reinterpret_cast<uint4*>(to), pairs, row + 8 * h < tile.rows);
  }
}

template <class S>
void launch(const Prompt<typename S::Kv>& prompt, int64_t tiles, StreamRef stream) {
  launch_chained(attend_kernel<S>,
                 dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(prompt.query_heads / S::kHeads)),
                 dim3(S::kThreads), sizeof(typename S::Shared), stream, prompt);
}

template <class Kv>
void attend_prompts(View<const bf16, 3> q, const Kv& kv, View<const float, 1> sinks, float scale,
                    int64_t window, View<const PromptTile, 1> tiles, const PagedRows& rows, View<bf16, 3> out,
                    StreamRef stream) {
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
  [[maybe_unused]] static const bool allowed =  // both, as the next call may be captured
      (allow_shared_memory(attend_kernel<Four>, sizeof(typename Four::Shared)),
       allow_shared_memory(attend_kernel<Two>, sizeof(typename Two::Shared)), true);
  constexpr int64_t kEndless = INT32_MAX / 2;
  const Prompt<Kv> prompt{.q            = q.data(),
                          .out          = out.data(),
                          .kv           = kv,
                          .sinks        = sinks.data(),
                          .tiles        = tiles.data(),
                          .positions    = rows.positions.data(),
                          .pages        = rows.pages.data(),
                          .pages_stride = static_cast<int>(rows.pages.stride(0)),
                          .query_heads  = static_cast<int>(heads),
                          .group        = static_cast<int>(heads / kv.heads),
                          .window = static_cast<int>(window > 0 ? std::min(window, kEndless) : kEndless),
                          .scale  = scale * kLog2E};
  // Few steps a block, or few blocks.
  if ((window > 0 && window <= 4 * kPage) || tiles.extent(0) * heads / Four::kHeads < multiprocessors())
    launch<Two>(prompt, tiles.extent(0), stream);
  else
    launch<Four>(prompt, tiles.extent(0), stream);
}

}  // namespace

void attend_many(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                 int64_t window, View<const PromptTile, 1> tiles, const PagedRows& rows, View<bf16, 3> out,
                 StreamRef stream) {
  std::visit([&](const auto& its) { attend_prompts(q, its, sinks, scale, window, tiles, rows, out, stream); },
             kv);
}

}  // namespace fathom::kernels
