// What the variants on CUDA cores share: a block of 4 warps walks over the pages of a sequence with an online
// softmax for one or eight query heads of a key-value head.
//
// Eight lanes have a row of a tile, 16 bytes each, so that a warp's load is 4 rows or 512 bytes in one piece,
// and of a page each lane has 4 rows of keys and of values. Every eight lanes keep maxima and sums of their
// own, and meet at the end. Maxima begin with the sink, which is finite: so a row without any position in
// reach needs no special case. Its weight is added once, by who divides.
#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "attention.h"
#include "core/ptx.cuh"

namespace fathom::lab::decode_attention_gpu {

inline constexpr int kThreads = 128, kWarps = kThreads / 32;
inline constexpr int kEights  = 4;  // of lanes in a warp
inline constexpr int kRows    = 4;  // of a page, that a lane has a piece of
inline constexpr int kPiece   = 8;  // numbers of a head that a lane has: 16 bytes
inline constexpr float kLog2E = 1.44269504f;
static_assert(kWarps * kEights * kRows == kPage && 8 * kPiece == kHeadDim);

// Positions first .. last of a sequence.
struct Reach {
  int first, last;

  __device__ bool holds(int position) const { return first <= position && position <= last; }
};

__device__ inline Reach reach_of(const DecodeAttention& p, int s) {
  const int position = p.positions(s), window = static_cast<int>(p.window);
  return {window > 0 ? max(0, position - window + 1) : 0, position};
}

__device__ inline void unpack(uint4 piece, float (&numbers)[kPiece]) {
  const uint32_t pairs[] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < kPiece; ++i)
    numbers[i] = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
}

__device__ inline int piece_of_lane() { return threadIdx.x % 8; }
__device__ inline int row_of_lane(int i) {  // within a page
  return threadIdx.x / 32 * (kEights * kRows) + i * kEights + threadIdx.x % 32 / 8;
}

// Two pages, of which a lane copies the pieces that it will read itself: it waits for its own copies alone.
struct Stages {
  uint4 keys[2][kRows][kThreads], values[2][kRows][kThreads];

  // Zeros where a position is out of reach, and nothing is read there.
  __device__ void fetch(int stage, const kernels::KvTiles& kv, int page, int kv_head, int first_position,
                        Reach reach) {
    const bf16* tile = kv.keys(page, kv_head);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row    = row_of_lane(i);
      const bf16* from = tile + kernels::KvTiles::at(row, piece_of_lane() * kPiece);
      const int bytes  = reach.holds(first_position + row) ? 16 : 0;
      ptx::cp_async_16(&keys[stage][i][threadIdx.x], from, bytes);
      ptx::cp_async_16(&values[stage][i][threadIdx.x], from + kernels::KvTiles::kElements, bytes);
    }
  }
};

// Four dimensions of a head, of all lanes of a block: weights and values summed in units of 2^most.
struct Merged {
  float most, sum;
  float4 out;

  // Sums in units of 2^other_most, which is no larger.
  __device__ void add(float other_most, float other_sum, float4 other) {
    const float times = ptx::exp2_approximate(other_most - most);
    sum += times * other_sum;
    out.x += times * other.x;
    out.y += times * other.y;
    out.z += times * other.z;
    out.w += times * other.w;
  }
};

// Of kHeadsOfBlock heads, 1 or 8. Scores are to base 2.
template <int kHeadsOfBlock>
struct Running {
  // Of a head, of each warp.
  struct Shared {
    Stages stages;
    float4 out[kWarps][kHeadsOfBlock][kHeadDim / 4];
    float most[kWarps][kHeadsOfBlock], sum[kWarps][kHeadsOfBlock];
  };

  float q[kHeadsOfBlock][kPiece], out[kHeadsOfBlock][kPiece] = {};
  float most, sum = 0;  // of head lane % kHeadsOfBlock: every eight lanes have all heads

  // Heads `head` .. + kHeadsOfBlock of row s.
  __device__ Running(const DecodeAttention& p, int s, int head)
      : most(p.sinks(head + static_cast<int>(threadIdx.x) % kHeadsOfBlock) * kLog2E) {
#pragma unroll
    for (int h = 0; h < kHeadsOfBlock; ++h) {
      unpack(*reinterpret_cast<const uint4*>(&p.q(s, head + h, piece_of_lane() * kPiece)), q[h]);
#pragma unroll
      for (float& x : q[h]) x *= kScale * kLog2E;
    }
  }

  // What the lane that keeps head h has.
  __device__ static float of_head(float x, int h) {
    return kHeadsOfBlock == 1 ? x : __shfl_sync(~0u, x, h, 8);
  }

  // Sums over eight lanes: with one head each gets it, with eight a lane gets that of its own head. Then
  // lanes exchange what the other keeps, first 4 heads, then 2, then 1: 7 shuffles and not 24.
  __device__ static float over_lanes(float (&x)[kHeadsOfBlock]) {
#pragma unroll
    for (int other = 4; other > 0; other /= 2) {
      if (kHeadsOfBlock == 1) {
        x[0] += __shfl_xor_sync(~0u, x[0], other);
        continue;
      }
      const bool upper = threadIdx.x & other;
#pragma unroll
      for (int h = 0; h < other; ++h) {
        const float mine = upper ? x[h + other] : x[h], theirs = upper ? x[h] : x[h + other];
        x[h] = mine + __shfl_xor_sync(~0u, theirs, other);
      }
    }
    return x[0];
  }

  __device__ void raise(float highest) {
    const float times = ptx::exp2_approximate(most - highest);
    most              = highest;
    sum *= times;
#pragma unroll
    for (int h = 0; h < kHeadsOfBlock; ++h) {
      const float times_h = of_head(times, h);
#pragma unroll
      for (float& x : out[h]) x *= times_h;
    }
  }

  __device__ void add(const Stages& stages, int stage, int first_position, Reach reach) {
    float weights[kRows], highest = most;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float key[kPiece], products[kHeadsOfBlock] = {};
      unpack(stages.keys[stage][i][threadIdx.x], key);
#pragma unroll
      for (int h = 0; h < kHeadsOfBlock; ++h)
#pragma unroll
        for (int d = 0; d < kPiece; ++d) products[h] += q[h][d] * key[d];
      const float score = over_lanes(products);
      weights[i]        = reach.holds(first_position + row_of_lane(i)) ? score : -INFINITY;
      highest           = fmaxf(highest, weights[i]);
    }
    raise(highest);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      weights[i] = ptx::exp2_approximate(weights[i] - most);
      sum += weights[i];
      float value[kPiece];
      unpack(stages.values[stage][i][threadIdx.x], value);
#pragma unroll
      for (int h = 0; h < kHeadsOfBlock; ++h) {
        const float weight = of_head(weights[i], h);
#pragma unroll
        for (int d = 0; d < kPiece; ++d) out[h][d] += weight * value[d];
      }
    }
  }

  // The next page is under way while this one is added, and the number of the page behind it.
  __device__ void walk(Stages& stages, const DecodeAttention& p, int s, int kv_head, Reach reach) {
    if (reach.last < reach.first) return;
    const int32_t* const pages = &p.pages(s, 0);
    const int first = reach.first / kPage, last = reach.last / kPage;
    stages.fetch(0, p.kv(), pages[first], kv_head, first * kPage, reach);
    ptx::cp_async_commit();
    int ahead = pages[min(first + 1, last)];
    for (int page = first; page <= last; ++page) {
      const int stage = (page - first) % 2;
      if (page < last) stages.fetch(1 - stage, p.kv(), ahead, kv_head, (page + 1) * kPage, reach);
      ptx::cp_async_commit();
      ahead = pages[min(page + 2, last)];
      ptx::cp_async_wait<1>();  // this page is there
      add(stages, stage, page * kPage, reach);
    }
  }

  // By all threads; thread t < 16 kHeadsOfBlock gets dimensions 4 (t % 16) .. + 4 of head t / 16.
  __device__ Merged merge(Shared& shared) {
#pragma unroll
    for (int other = 8; other < 32; other *= 2) {
      raise(fmaxf(most, __shfl_xor_sync(~0u, most, other)));  // both to the same
      sum += __shfl_xor_sync(~0u, sum, other);
#pragma unroll
      for (int h = 0; h < kHeadsOfBlock; ++h)
#pragma unroll
        for (float& x : out[h]) x += __shfl_xor_sync(~0u, x, other);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < kHeadsOfBlock; ++h) {
      if (lane / 8 != h % kEights) continue;  // all eights have the sums now: they share the stores
      float4* to = shared.out[warp][h] + piece_of_lane() * 2;
      to[0]      = {out[h][0], out[h][1], out[h][2], out[h][3]};
      to[1]      = {out[h][4], out[h][5], out[h][6], out[h][7]};
    }
    if (lane < kHeadsOfBlock) {
      shared.most[warp][lane] = most;
      shared.sum[warp][lane]  = sum;
    }
    __syncthreads();  // every warp's sums are there
    Merged merged = {};
    const int h   = static_cast<int>(threadIdx.x) / (kHeadDim / 4);
    if (h >= kHeadsOfBlock) return merged;
    merged.most = shared.most[0][h];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) merged.most = fmaxf(merged.most, shared.most[w][h]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      merged.add(shared.most[w][h], shared.sum[w][h], shared.out[w][h][threadIdx.x % (kHeadDim / 4)]);
    return merged;
  }
};

// Four numbers of a row's result; `sink` to base 2.
__device__ inline void store_result(bf16* to, const Merged& merged, float sink) {
  const float times             = 1 / (merged.sum + ptx::exp2_approximate(sink - merged.most));
  const __nv_bfloat162 low      = __floats2bfloat162_rn(merged.out.x * times, merged.out.y * times);
  const __nv_bfloat162 high     = __floats2bfloat162_rn(merged.out.z * times, merged.out.w * times);
  *reinterpret_cast<uint2*>(to) = {reinterpret_cast<const uint32_t&>(low),
                                   reinterpret_cast<const uint32_t&>(high)};
}

}  // namespace fathom::lab::decode_attention_gpu
