// Attention of a prompt and of decoding rows, cut into units of one CTA each. The variants differ in which
// CTA takes which unit.
//
//   prompt unit     16 tokens and the 8 query heads of a key-value head: 128 rows of queries
//   decoding unit   a sequence and the 8 query heads of a key-value head
//
// bytes   a decoding unit reads 256 bytes a position; prompt units read theirs from L2
// flops   16384 for each pair of a token and a position in its reach
// limit   decoding: DRAM bandwidth, 537 MB for 64 sequences of 4096 are 119 us. Prompt: the tensor cores and
//         the reads of their operands, 2048 tokens are 34 GFLOP
// idea    both kinds are one algorithm, S^T = K Q^T and O^T = V^T P^T by mma.sync with 8 query heads as
//         columns: a decoding warp has one token's 8 heads, a prompt's warp those of four tokens, so that
//         each fragment of keys and values serves four products. Units of both kinds need 64 KiB of shared
//         memory, and three CTAs share a multiprocessor: one waits for memory while another multiplies, if
//         they are of different kinds
// source  Kamath et al., POD-Attention, 2024 (tickets of a multiprocessor)
#include <algorithm>
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "pod.h"

namespace fathom::lab::pod_attention {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kKeys       = 32;                                 // of a tile
constexpr int kHalfBytes  = kKeys * kHeadDim * 2;               // of its keys, and of its values
constexpr int kStages     = 8;                                  // of a CTA
constexpr int kWarpTokens = 4, kTokens = kWarps * kWarpTokens;  // of a prompt unit
constexpr float kLog2E = 1.44269504f;

struct Shared {
  alignas(1024) unsigned char tiles[kStages][2 * kHalfBytes];
  float max_score[kWarps][kGroup], sum[kWarps][kGroup];
  uint64_t full[kStages];
  int unit;
};
static_assert(3 * (sizeof(Shared) + 1024) <= 228 * 1024, "three CTAs share a multiprocessor");

// Starts the copy of tile `tile` of a sequence and key-value head. By one thread.
__device__ void load_tile(Shared& shared, int stage, const kernels::Bf16KvPages& kv, const int32_t* pages,
                          int tile, int kv_head) {
  constexpr int kOfPage = kPage / kKeys;
  const bf16* keys      = kv.keys(pages[tile / kOfPage], kv_head) + tile % kOfPage * (kKeys * kHeadDim);
  uint64_t* full        = &shared.full[stage];
  ptx::mbarrier_arrive_expect_tx(full, 2 * kHalfBytes);
  ptx::cp_async_bulk_load(shared.tiles[stage], keys, kHalfBytes, full);
  ptx::cp_async_bulk_load(shared.tiles[stage] + kHalfBytes, keys + kernels::Bf16KvPages::kElements,
                          kHalfBytes, full);
}

// Online softmax of a warp with the 8 heads of kCount tokens. Lane 4 g + t has heads 2 t and 2 t + 1 of each;
// its sums of weights are over keys g and g + 8 of each 16, its outputs are dimensions g and g + 8 of each
// 16.
template <int kCount>
struct Rows {
  uint32_t q[kCount][4][2];
  float max_score[kCount][2], sum[kCount][2] = {}, out[kCount][4][4] = {};

  // queries(i): the first of token i's 8 rows.
  template <class Queries>
  __device__ explicit Rows(const Queries& queries) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const auto* row = reinterpret_cast<const uint32_t*>(queries(i) + threadIdx.x % 32 / 4 * kHeadDim);
#pragma unroll
      for (int piece = 0; piece < 8; ++piece) q[i][piece / 2][piece % 2] = row[piece * 4 + threadIdx.x % 4];
      max_score[i][0] = max_score[i][1] = -INFINITY;
    }
  }

  // Token i sees keys 0 .. last(i) of the tile, at least one of the first tile. In steps of 16 keys, so that
  // all registers fit.
  template <class Last>
  __device__ void attend(const unsigned char* tile, const Last& last) {
    const int lane      = threadIdx.x % 32;
    const uint32_t base = ptx::shared_address(tile);
    const uint32_t keys = base + lane % 16 * 128 + ((lane / 16) ^ (lane % 8)) * 16;
    const uint32_t values =
        base + kHalfBytes + (lane % 8 + lane / 16 * 8) * 128 + ((lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll 1
    for (int first = 0; first < kKeys; first += 16) {
      float s[kCount][4] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t a[4];
        ptx::ldmatrix_x4(a, (keys + first * 128) ^ (k * 32));
#pragma unroll
        for (int i = 0; i < kCount; ++i) ptx::mma_m16n8k16(s[i], a, q[i][k]);
      }
      uint32_t p[kCount][2];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (last(i) - first < 15) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (lane / 4 + e / 2 * 8 > last(i) - first) s[i][e] = -INFINITY;
        }
        float rescale[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float most =
              fmaxf(max_score[i][h], column_reduce_max(fmaxf(s[i][h], s[i][2 + h])) * (kScale * kLog2E));
          rescale[h]      = ptx::ex2_approx(max_score[i][h] - most);
          max_score[i][h] = most;
          sum[i][h] *= rescale[h];
        }
#pragma unroll
        for (int d = 0; d < 4; ++d)
#pragma unroll
          for (int e = 0; e < 4; ++e) out[i][d][e] *= rescale[e % 2];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[i][e] = ptx::ex2_approx(__fmaf_rn(s[i][e], kScale * kLog2E, -max_score[i][e % 2]));
          sum[i][e % 2] += s[i][e];
        }
        p[i][0] = ptx::movmatrix_trans(pack_bf16x2(s[i][0], s[i][1]));
        p[i][1] = ptx::movmatrix_trans(pack_bf16x2(s[i][2], s[i][3]));
      }
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        uint32_t a[4];
        ptx::ldmatrix_x4_trans(a, (values + first * 128) ^ (d * 32));
#pragma unroll
        for (int i = 0; i < kCount; ++i) ptx::mma_m16n8k16(out[i][d], a, p[i]);
      }
    }
  }
};

// 16 tokens and a key-value head; the last tokens, which take longest, are the first units. The CTA's warps
// share the tiles.
__device__ void prompt_unit(const Pod& p, Shared& shared, int unit) {
  const int tokens = static_cast<int>(p.tokens), blocks = (tokens + kTokens - 1) / kTokens;
  const int first = (blocks - 1 - unit / kKvHeads) * kTokens, kv_head = unit % kKvHeads;
  const int count = (min(first + kTokens, tokens) - 1) / kKeys + 1;
  const int mine  = first + static_cast<int>(threadIdx.x) / 32 * kWarpTokens;  // the warp's tokens
  const auto load = [&](int tile) {
    if (threadIdx.x == 0 && tile < count)
      load_tile(shared, tile % kStages, p.kv(), &p.prompt_pages(0, 0), tile, kv_head);
  };
  for (int tile = 0; tile < kStages; ++tile) load(tile);

  Rows<kWarpTokens> rows([&](int i) { return &p.prompt_q(min(mine + i, tokens - 1), kv_head * kGroup, 0); });
#pragma unroll 1
  for (int tile = 0; tile < count; ++tile) {
    ptx::mbarrier_wait(&shared.full[tile % kStages], tile / kStages & 1);
    const int last = mine - tile * kKeys;
    if (last > -kWarpTokens) rows.attend(shared.tiles[tile % kStages], [&](int i) { return last + i; });
    __syncthreads();  // all warps have read the tile
    load(tile + kStages);
  }
#pragma unroll
  for (int i = 0; i < kWarpTokens; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int lane = threadIdx.x % 32, head = kv_head * kGroup + lane % 4 * 2 + h;
      const float sum     = column_reduce_sum(rows.sum[i][h]);
      const float inverse = 1 / (sum + ptx::ex2_approx(p.sinks(head) * kLog2E - rows.max_score[i][h]));
      if (mine + i >= tokens) continue;
      bf16* to = &p.prompt_out(mine + i, head, lane / 4);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        store_bf16(to + d * 16, rows.out[i][d][h] * inverse);
        store_bf16(to + d * 16 + 8, rows.out[i][d][2 + h] * inverse);
      }
    }
  }
}

// A sequence and a key-value head. Each warp has every fourth tile and two stages of its own, and at the end
// the warps merge.
__device__ void decoding_unit(const Pod& p, Shared& shared, int unit) {
  constexpr int kWarpStages = kStages / kWarps, kRowStride = kHeadDim + 4;
  static_assert(kGroup * kRowStride * 4 <= kWarpStages * 2 * kHalfBytes);
  const int s = unit / kKvHeads, kv_head = unit % kKvHeads, context = static_cast<int>(p.context);
  const int tiles = (context + kKeys - 1) / kKeys;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto load = [&](int i) {
    const int tile = warp + i * kWarps;
    if (lane == 0 && tile < tiles)
      load_tile(shared, warp * kWarpStages + i % kWarpStages, p.kv(), &p.pages(s, 0), tile, kv_head);
  };
  for (int i = 0; i < kWarpStages; ++i) load(i);

  Rows<1> rows([&](int) { return &p.q(s, kv_head * kGroup, 0); });
  for (int i = 0; warp + i * kWarps < tiles; ++i) {
    const int stage = warp * kWarpStages + i % kWarpStages;
    ptx::mbarrier_wait(&shared.full[stage], i / kWarpStages & 1);
    rows.attend(shared.tiles[stage], [&](int) { return context - 1 - (warp + i * kWarps) * kKeys; });
    __syncwarp();  // all lanes have read the stage
    load(i + kWarpStages);
  }

  // A warp's sums take the place of its tiles.
  const auto of_warp = [&](int w) { return reinterpret_cast<float*>(shared.tiles[w * kWarpStages]); };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int head  = lane % 4 * 2 + h;
    float* to       = of_warp(warp) + head * kRowStride + lane / 4;
    const float sum = column_reduce_sum(rows.sum[0][h]);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      to[d * 16]     = rows.out[0][d][h];
      to[d * 16 + 8] = rows.out[0][d][2 + h];
    }
    if (lane < 4) {
      shared.max_score[warp][head] = rows.max_score[0][h];
      shared.sum[warp][head]       = sum;
    }
  }
  __syncthreads();  // all warps' sums are stored
  const int head = threadIdx.x / (kHeadDim / 4), d = threadIdx.x % (kHeadDim / 4) * 4;
  static_assert(kThreads == kGroup * kHeadDim / 4);
  const float sink = p.sinks(kv_head * kGroup + head) * kLog2E;
  float most = sink, merged[4] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.max_score[w][head]);
  float sum = ptx::ex2_approx(sink - most);
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float factor = ptx::ex2_approx(shared.max_score[w][head] - most);  // 0 for a warp without tiles
    const float4 four  = *reinterpret_cast<const float4*>(of_warp(w) + head * kRowStride + d);
    sum += factor * shared.sum[w][head];
    merged[0] += factor * four.x;
    merged[1] += factor * four.y;
    merged[2] += factor * four.z;
    merged[3] += factor * four.w;
  }
  *reinterpret_cast<uint2*>(&p.out(s, kv_head * kGroup + head, d)) = {
      pack_bf16x2(merged[0] / sum, merged[1] / sum), pack_bf16x2(merged[2] / sum, merged[3] / sum)};
}

__host__ __device__ inline int prompt_units(const Pod& p) {
  return static_cast<int>((p.tokens + kTokens - 1) / kTokens) * kKvHeads;
}
__host__ __device__ inline int decoding_units(const Pod& p) {
  return static_cast<int>(p.context > 0 ? p.q.extent(0) : 0) * kKvHeads;
}

enum class Order { prompt, decoding, interleaved, sm_aware };

// Of `prompts` + `decodings` numbers in turn, those that are prompts are spread evenly: how many are before
// the i-th.
__device__ int prompts_before(int i, int prompts, int decodings) {
  return static_cast<int>(int64_t{i} * prompts / (prompts + decodings));
}

// The number of the CTA's unit: prompts first, then decodings. By one thread.
template <Order kOrder>
__device__ int choose_unit(const Pod& p) {
  const int prompts = prompt_units(p), decodings = decoding_units(p), cta = blockIdx.x;
  if constexpr (kOrder == Order::prompt) return cta;
  if constexpr (kOrder == Order::decoding) return prompts + cta;
  if constexpr (kOrder == Order::interleaved) {
    const int before = prompts_before(cta, prompts, decodings);
    return prompts_before(cta + 1, prompts, decodings) > before ? before : prompts + cta - before;
  }
  // Each multiprocessor spreads the kinds among the CTAs that start on it. A kind that has run out leaves the
  // other: there are as many CTAs as units.
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  int* const next  = p.tickets.data();
  const int ticket = atomicAdd(&next[2 + sm % kMultiprocessors], 1) % (prompts + decodings);
  const bool prompt =
      prompts_before(ticket + 1, prompts, decodings) > prompts_before(ticket, prompts, decodings);
  const int unit = atomicAdd(&next[prompt ? 0 : 1], 1);
  if (prompt) return unit < prompts ? unit : prompts + atomicAdd(&next[1], 1);
  return unit < decodings ? prompts + unit : atomicAdd(&next[0], 1);
}

template <Order kOrder>
__global__ void __launch_bounds__(kThreads, 3) units_kernel(const __grid_constant__ Pod p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (uint64_t& full : shared.full) ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
    shared.unit = choose_unit<kOrder>(p);
  }
  __syncthreads();  // and so do all threads, and the unit
  const int unit = shared.unit, prompts = prompt_units(p);
  if (kOrder == Order::prompt || (kOrder != Order::decoding && unit < prompts))
    prompt_unit(p, shared, unit);
  else
    decoding_unit(p, shared, unit - prompts);
}

template <Order kOrder>
void launch(const Pod& p, int units, StreamRef stream) {
  if (units == 0) return;
  allow_shared_memory_once<units_kernel<kOrder>>(sizeof(Shared));
  units_kernel<kOrder><<<static_cast<unsigned>(units), kThreads, sizeof(Shared), stream>>>(p);
  FATHOM_LAUNCHED();
}

// Rows of sequences without a context are zeros.
void clear_empty(const Pod& p, StreamRef stream) {
  if (p.context == 0 && p.out.size() > 0)
    FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
}

}  // namespace

// A launch for each kind, one after the other.
void one_after_another(const Pod& p, StreamRef stream) {
  clear_empty(p, stream);
  launch<Order::prompt>(p, prompt_units(p), stream);
  launch<Order::decoding>(p, decoding_units(p), stream);
}

// One launch; the kinds alternate in the order in which CTAs start, wherever they do.
void interleaved(const Pod& p, StreamRef stream) {
  clear_empty(p, stream);
  launch<Order::interleaved>(p, prompt_units(p) + decoding_units(p), stream);
}

// One launch; the kinds alternate on each multiprocessor.
void sm_aware(const Pod& p, StreamRef stream) {
  clear_empty(p, stream);
  FATHOM_CUDA(cudaMemsetAsync(p.tickets.data(), 0, static_cast<size_t>(p.tickets.bytes()), stream));
  launch<Order::sm_aware>(p, prompt_units(p) + decoding_units(p), stream);
}

}  // namespace fathom::lab::pod_attention
