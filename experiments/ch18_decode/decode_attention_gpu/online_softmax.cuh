// Code that the variants on CUDA cores share: a CTA of 4 warps walks over the pages of a sequence with an
// online softmax for one or eight query heads of a key-value head.
//
// Eight lanes have a row of a tile, 16 bytes each, so that a warp's load is 4 rows, 512 contiguous bytes; of
// a page each lane has 4 rows of keys and of values. Every eight lanes keep their own maxima and sums, which
// are merged at the end. Maxima start with the sink, which is finite, so a row without any position in reach
// needs no special case. The sink's weight is added once, where the result is divided.
#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "attention.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"

namespace fathom::lab::decode_attention_gpu {

inline constexpr int kThreads = 128, kWarps = kThreads / 32;
inline constexpr int kEights  = 4;  // groups of eight lanes in a warp
inline constexpr int kRows    = 4;  // rows of a page a lane
inline constexpr int kPiece   = 8;  // dimensions a lane: 16 bytes
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

// Two pages. A lane copies what it will read itself, so it waits for its own copies only.
struct Stages {
  uint4 keys[2][kRows][kThreads], values[2][kRows][kThreads];

  // Positions out of reach become zeros, and are not read.
  __device__ void fetch(int stage, const kernels::Bf16KvPages& kv, int page, int kv_head, int first_position,
                        Reach reach) {
    const bf16* tile = kv.keys(page, kv_head);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row    = row_of_lane(i);
      const bf16* from = tile + kernels::Bf16KvPages::at(row, piece_of_lane() * kPiece);
      const int bytes  = reach.holds(first_position + row) ? 16 : 0;
      ptx::cp_async_cg(&keys[stage][i][threadIdx.x], from, bytes);
      ptx::cp_async_cg(&values[stage][i][threadIdx.x], from + kernels::Bf16KvPages::kElements, bytes);
    }
  }
};

// Four dimensions of a head, summed over all lanes of a CTA; sums are in units of 2^max.
struct Merged {
  float max, sum;
  float4 out;

  // Adds sums in units of 2^other_max, other_max <= max.
  __device__ void add(float other_max, float other_sum, float4 other) {
    const float times = ptx::ex2_approx(other_max - max);
    sum += times * other_sum;
    out.x += times * other.x;
    out.y += times * other.y;
    out.z += times * other.z;
    out.w += times * other.w;
  }
};

// The online softmax of kHeadsOfCta heads, 1 or 8. Scores are to base 2.
template <int kHeadsOfCta>
struct Running {
  // Results of each warp and head.
  struct Shared {
    Stages stages;
    float4 out[kWarps][kHeadsOfCta][kHeadDim / 4];
    float max[kWarps][kHeadsOfCta], sum[kWarps][kHeadsOfCta];
  };

  float q[kHeadsOfCta][kPiece], out[kHeadsOfCta][kPiece] = {};
  float max, sum = 0;  // of head lane % kHeadsOfCta; every eight lanes have all heads

  // Heads `head` .. + kHeadsOfCta of row s.
  __device__ Running(const DecodeAttention& p, int s, int head)
      : max(p.sinks(head + static_cast<int>(threadIdx.x) % kHeadsOfCta) * kLog2E) {
#pragma unroll
    for (int h = 0; h < kHeadsOfCta; ++h) {
      unpack(*reinterpret_cast<const uint4*>(&p.q(s, head + h, piece_of_lane() * kPiece)), q[h]);
#pragma unroll
      for (float& x : q[h]) x *= kScale * kLog2E;
    }
  }

  // The value of the lane that keeps head h.
  __device__ static float of_head(float x, int h) { return kHeadsOfCta == 1 ? x : __shfl_sync(~0u, x, h, 8); }

  // Sums over eight lanes. With one head every lane gets the sum; with eight heads each lane gets its own
  // head's: lanes exchange 4 heads, then 2, then 1, in 7 shuffles instead of 24.
  __device__ static float sum_over_eight(float (&x)[kHeadsOfCta]) {
#pragma unroll
    for (int other = 4; other > 0; other /= 2) {
      if (kHeadsOfCta == 1) {
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
    const float times = ptx::ex2_approx(max - highest);
    max               = highest;
    sum *= times;
#pragma unroll
    for (int h = 0; h < kHeadsOfCta; ++h) {
      const float times_h = of_head(times, h);
#pragma unroll
      for (float& x : out[h]) x *= times_h;
    }
  }

  __device__ void add(const Stages& stages, int stage, int first_position, Reach reach) {
    float weights[kRows], highest = max;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float key[kPiece], products[kHeadsOfCta] = {};
      unpack(stages.keys[stage][i][threadIdx.x], key);
#pragma unroll
      for (int h = 0; h < kHeadsOfCta; ++h)
#pragma unroll
        for (int d = 0; d < kPiece; ++d) products[h] += q[h][d] * key[d];
      const float score = sum_over_eight(products);
      weights[i]        = reach.holds(first_position + row_of_lane(i)) ? score : -INFINITY;
      highest           = fmaxf(highest, weights[i]);
    }
    raise(highest);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      weights[i] = ptx::ex2_approx(weights[i] - max);
      sum += weights[i];
      float value[kPiece];
      unpack(stages.values[stage][i][threadIdx.x], value);
#pragma unroll
      for (int h = 0; h < kHeadsOfCta; ++h) {
        const float weight = of_head(weights[i], h);
#pragma unroll
        for (int d = 0; d < kPiece; ++d) out[h][d] += weight * value[d];
      }
    }
  }

  // Loads the next page, and the number of the page after it, while this page is added.
  __device__ void walk(Stages& stages, const DecodeAttention& p, int s, int kv_head, Reach reach) {
    if (reach.last < reach.first) return;
    const int32_t* const pages = &p.pages(s, 0);
    const int first = reach.first / kPage, last = reach.last / kPage;
    stages.fetch(0, p.kv(), pages[first], kv_head, first * kPage, reach);
    ptx::cp_async_commit_group();
    int ahead = pages[min(first + 1, last)];
    for (int page = first; page <= last; ++page) {
      const int stage = (page - first) % 2;
      if (page < last) stages.fetch(1 - stage, p.kv(), ahead, kv_head, (page + 1) * kPage, reach);
      ptx::cp_async_commit_group();
      ahead = pages[min(page + 2, last)];
      ptx::cp_async_wait_group<1>();  // this page has arrived
      add(stages, stage, page * kPage, reach);
    }
  }

  // By all threads; thread t < 16 kHeadsOfCta gets dimensions 4 (t % 16) .. + 4 of head t / 16.
  __device__ Merged merge(Shared& shared) {
#pragma unroll
    for (int other = 8; other < 32; other *= 2) {
      raise(fmaxf(max, __shfl_xor_sync(~0u, max, other)));  // both lanes to the same maximum
      sum += __shfl_xor_sync(~0u, sum, other);
#pragma unroll
      for (int h = 0; h < kHeadsOfCta; ++h)
#pragma unroll
        for (float& x : out[h]) x += __shfl_xor_sync(~0u, x, other);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < kHeadsOfCta; ++h) {
      if (lane / 8 != h % kEights) continue;  // all groups of eight have the sums: they divide the stores
      float4* to = shared.out[warp][h] + piece_of_lane() * 2;
      to[0]      = {out[h][0], out[h][1], out[h][2], out[h][3]};
      to[1]      = {out[h][4], out[h][5], out[h][6], out[h][7]};
    }
    if (lane < kHeadsOfCta) {
      shared.max[warp][lane] = max;
      shared.sum[warp][lane] = sum;
    }
    __syncthreads();  // every warp's sums are stored
    Merged merged = {};
    const int h   = static_cast<int>(threadIdx.x) / (kHeadDim / 4);
    if (h >= kHeadsOfCta) return merged;
    merged.max = shared.max[0][h];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) merged.max = fmaxf(merged.max, shared.max[w][h]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      merged.add(shared.max[w][h], shared.sum[w][h], shared.out[w][h][threadIdx.x % (kHeadDim / 4)]);
    return merged;
  }
};

// Four numbers of a row's result; `sink` to base 2.
__device__ inline void store_result(bf16* to, const Merged& merged, float sink) {
  const float times             = 1 / (merged.sum + ptx::ex2_approx(sink - merged.max));
  *reinterpret_cast<uint2*>(to) = {pack_bf16x2(merged.out.x * times, merged.out.y * times),
                                   pack_bf16x2(merged.out.z * times, merged.out.w * times)};
}

}  // namespace fathom::lab::decode_attention_gpu
