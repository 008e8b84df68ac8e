// ds = p (dp - delta); dv = p' d_out, dk = scale ds' q, dq = scale ds k     (flash_attention_backward.h)
//
// bytes   a block of 128 keys reads q and d_out of the queries in its reach from L2, and adds fp32 sums of
//         their dq there: as many bytes again. T = 8192, D = 128, causal: 0.27 GB a head
// flops   10 D a pair of a query and a key, rounded up to whole blocks
// limit   the tensor cores. H200: 43 GFLOP a head of T = 8192, D = 128, causal: 43 us at 989 TFLOP/s. Shared
//         memory is as near: wgmma reads 128 KiB of operands for 64 x 64 scores, 0.8 of the products' clocks
// idea    a CTA owns 128 keys and streams the queries; or, for dq alone, owns queries and streams keys. It
//         computes the scores so that its own rows are rows of the accumulator (s' = k q'). Then p' and ds'
//         lie in registers as the A operand of dv += p' d_out and dk += ds' q, and nothing is transposed.
//         Only dq += ds k needs ds of both warpgroups: through shared memory, read as a transposed operand.
//         FlashAttention-3 works so too. A producer warp loads by TMA into a ring of two stages
// source  Dao, FlashAttention-2, arXiv:2307.08691, 2023, algorithm 2; Shah et al., FlashAttention-3,
//         arXiv:2407.08608, 2024
#include "kernels/attention/flash_attention_backward.h"

#include <cuda.h>

#include <cmath>

#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/warp_reduce.cuh"
#include "cuda/wgmma.cuh"
#include "kernels/gemm/pipeline_state.cuh"

namespace fathom::kernels {
namespace {

constexpr float kLog2E  = 1.44269504f;
constexpr int kOwnRows  = 128;      // of a CTA: 64 a warpgroup
constexpr int kBoxRows  = 64;       // of a TMA box, which has 64 columns: 128 bytes a row
constexpr int kRowBytes = 128;      // of a slab: 64 columns of an operand, with the 128-byte swizzle
constexpr int kTileSums = 64 * 64;  // of dq that a warpgroup adds for a block of queries
constexpr int kBoxBytes = kBoxRows * kRowBytes;

static_assert(kOwnRows == kBackwardRows);
int64_t padded(int64_t tokens) { return (tokens + kOwnRows - 1) / kOwnRows * kOwnRows; }

enum class Owns { keys, queries };

// kHeadDim   64 or 128
// kOwns      what a CTA owns: keys and values, of which it computes dk and dv, or queries and d_out: dq
// kAddsDq    the owner of keys adds to dq, too
template <int kHeadDim_, Owns kOwns_, bool kAddsDq_>
struct Shape {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr Owns kOwns   = kOwns_;
  static constexpr bool kAddsDq = kAddsDq_;
  static constexpr int kSums    = kOwns == Owns::keys ? 2 : 1;  // gradients of a CTA
  static constexpr int kBlock   = kHeadDim == 128 ? 64 : 128;  // streamed rows: what registers hold scores of
  static constexpr int kSlabs   = kHeadDim / 64;
  static constexpr int kThreads = 3 * 128;  // two consumer warpgroups and that of the producer
  static constexpr int kStages  = 2;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

  static constexpr int kOwnSlab = kOwnRows * kRowBytes, kOwnBytes = kSlabs * kOwnSlab;  // of one operand
  static constexpr int kBlockSlab = kBlock * kRowBytes, kBlockBytes = kSlabs * kBlockSlab;

  // In shared memory. What wgmma reads is aligned to 1024 bytes.
  struct Shared {
    uint8_t own[2][kOwnBytes];                  // k, v; or q, d_out
    uint8_t streamed[kStages][2][kBlockBytes];  // q, d_out; or k, v
    uint8_t ds[2][kBlock / 64][kOwnSlab];       // where kAddsDq: [keys][64 queries], of two successive blocks
    float terms[kStages][2][kBlock];            // of streamed queries: lse to base 2, delta
    uint64_t own_full, full[kStages], empty[kStages];
  };
};

struct Parameters {
  CUtensorMap own[2], streamed[2];  // [T][heads][D]
  const float *lse, *delta;         // [Hq][padded]; lse to base 2
  float* dq_sums;                   // [Hq][padded / kBlock][2][kTileSums], see add_dq()
  bf16* gradients[2];               // of own[0], own[1]
  int tokens, padded;
  int heads, group;  // heads of what a CTA owns; query heads of a group
  float scale;
  bool causal;
};

// Blocks of streamed rows that a CTA's own rows reach.
struct Steps {
  int begin, end;

  template <class S>
  __device__ static Steps of(const Parameters& a, int own_row) {
    const int blocks = (a.tokens + S::kBlock - 1) / S::kBlock;
    if (!a.causal) return {0, blocks};
    if (S::kOwns == Owns::keys) return {own_row / S::kBlock, blocks};
    return {0, min(blocks, (own_row + kOwnRows) / S::kBlock)};
  }
};

// Loads rows of a head, all columns, to slabs of `kRows` rows. Rows behind the last become zeros.
template <class S, int kRows>
__device__ void load_rows(uint8_t* to, const CUtensorMap& from, int row, int head, uint64_t* barrier) {
#pragma unroll
  for (int slab = 0; slab < S::kSlabs; ++slab)
#pragma unroll
    for (int box = 0; box < kRows / kBoxRows; ++box)
      ptx::cp_async_bulk_tensor_load(to + slab * kRows * kRowBytes + box * kBoxBytes, &from,
                                     row + box * kBoxRows, head, slab * 64, barrier);
}

// By one thread.
template <class S>
__device__ void produce(const Parameters& a, typename S::Shared& shared, int own_row, int own_head) {
  ptx::mbarrier_arrive_expect_tx(&shared.own_full, 2 * S::kOwnBytes);
  for (int i = 0; i < 2; ++i)
    load_rows<S, kOwnRows>(shared.own[i], a.own[i], own_row, own_head, &shared.own_full);

  const Steps steps    = Steps::of<S>(a, own_row);
  const int first_head = S::kOwns == Owns::keys ? own_head * a.group : own_head / a.group;
  const int heads      = S::kOwns == Owns::keys ? a.group : 1;
  constexpr int kTerms = S::kOwns == Owns::keys ? 2 * S::kBlock * 4 : 0;
  PipelineState<S::kStages> state;
  for (int head = first_head; head < first_head + heads; ++head)
    for (int block = steps.begin; block < steps.end; ++block, state.next()) {
      uint64_t* const full = &shared.full[state.stage];
      ptx::mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, 2 * S::kBlockBytes + kTerms);
      for (int i = 0; i < 2; ++i)
        load_rows<S, S::kBlock>(shared.streamed[state.stage][i], a.streamed[i], block * S::kBlock, head,
                                full);
      if constexpr (S::kOwns == Owns::keys) {
        const int64_t at = int64_t{head} * a.padded + block * S::kBlock;
        ptx::cp_async_bulk_load(shared.terms[state.stage][0], a.lse + at, kTerms / 2, full);
        ptx::cp_async_bulk_load(shared.terms[state.stage][1], a.delta + at, kTerms / 2, full);
      }
    }
}

// d = own streamed': 64 own rows, 64 streamed rows. Both operands lie along the head's dimensions.
template <class S>
__device__ void multiply_rows(float (&d)[32], uint64_t own, uint64_t streamed) {
#pragma unroll
  for (int slab = 0; slab < S::kSlabs; ++slab)
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::wgmma(d, ptx::advance_descriptor(own, slab * S::kOwnSlab + 32 * k),
                 ptx::advance_descriptor(streamed, slab * S::kBlockSlab + 32 * k), slab + k > 0);
}

// sums += weights streamed: 64 own rows, over 64 streamed rows.
template <class S>
__device__ void add_rows(float (&sums)[S::kHeadDim / 2], const uint32_t (&weights)[4][4], uint64_t streamed) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ptx::wgmma<ptx::Major::mn>(sums, weights[k], ptx::advance_descriptor(streamed, k * 16 * kRowBytes), true);
}

// The accumulators of 16 columns are the A operand of a product over these columns.
__device__ void pack(uint32_t (&to)[4][4], const float (&from)[32]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) to[i / 4][i % 4] = pack_bf16x2(from[2 * i], from[2 * i + 1]);
}
__device__ void fence_operands(uint32_t (&weights)[4][4]) {
#pragma unroll
  for (auto& fragment : weights) ptx::warpgroup_fence_operand(fragment);
}

__device__ float2 ld_shared_v2(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

// Adds a warpgroup's 64 x 64 numbers of dq. The sums lie in memory as they do in registers, 4 of a thread
// together, so that a warp adds 512 consecutive bytes; convert_dq_kernel puts them in order.
__device__ void add_dq(float* tile, const float (&dq)[32]) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  float* const to = tile + threadIdx.x % 128 * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * 512), "f"(dq[4 * i]),
                 "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                 : "memory");
#endif
}

// Stores a lane's part of 64 rows of a gradient, which has rows of `stride` numbers.
template <int kCount>
__device__ void store_rows(bf16* to, int64_t stride, const float (&sums)[kCount], float scale, int rows) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (8 * h >= rows) break;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      *reinterpret_cast<uint32_t*>(to + 8 * h * stride + 8 * i) =
          pack_bf16x2(sums[4 * i + 2 * h] * scale, sums[4 * i + 2 * h + 1] * scale);
  }
}

// Grid: (heads of what a CTA owns, blocks of kOwnRows). CTAs with the most steps begin first.
template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) backward_kernel(const __grid_constant__ Parameters a) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared         = *reinterpret_cast<typename S::Shared*>(memory);
  constexpr int kBlock = S::kBlock, kConsumers = 256;
  constexpr bool kOwnsKeys = S::kOwns == Owns::keys;
  const int own_head       = blockIdx.x;
  const int own_row        = (kOwnsKeys || !a.causal ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * kOwnRows;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&shared.own_full, 1);
    for (int i = 0; i < S::kStages; ++i) {
      ptx::mbarrier_init(&shared.full[i], 1);
      ptx::mbarrier_init(&shared.empty[i], kConsumers / 32);
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
  }
  __syncthreads();  // and so do the other threads

  if (threadIdx.x >= kConsumers) {
    ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x == kConsumers) produce<S>(a, shared, own_row, own_head);
    return;
  }
  ptx::setmaxnreg_inc<S::kConsumerRegisters>();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), warpgroup = warp / 4, lane = threadIdx.x % 32;
  const int row    = own_row + warp * 16 + lane / 4;  // of this lane's accumulators, and row + 8
  const int column = lane % 4 * 2;                    // in each block of 8 columns, and column + 1

  const uint32_t base = __shfl_sync(~0u, ptx::shared_address(memory), 0);
  const auto at       = [&](const void* member) {  // the shared address, known to be the same in all lanes
    return base + static_cast<uint32_t>(static_cast<const uint8_t*>(member) - memory);
  };
  const uint64_t own      = ptx::smem_descriptor_128b(at(shared.own[0]) + warpgroup * 64 * kRowBytes);
  const uint64_t streamed = ptx::smem_descriptor_128b(at(shared.streamed), S::kBlockSlab);
  const uint32_t full = at(shared.full), empty = at(shared.empty);
  const uint32_t lane_terms = at(shared.terms) + column * 4;

  float sums[S::kSums][S::kHeadDim / 2];
#pragma unroll
  for (auto& of_own : sums)
#pragma unroll
    for (float& sum : of_own) sum = 0;
  float own_lse[2] = {}, own_delta[2] = {};
  if constexpr (!kOwnsKeys)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t term = int64_t{own_head} * a.padded + row + 8 * h;
      own_lse[h] = a.lse[term], own_delta[h] = a.delta[term];
    }

  const Steps steps    = Steps::of<S>(a, own_row);
  const int first_head = kOwnsKeys ? own_head * a.group : 0;
  const int heads      = kOwnsKeys ? a.group : 1;
  const float to_log2  = a.scale * kLog2E;
  PipelineState<S::kStages> state;
  int buffer = 0;  // of ds
  ptx::mbarrier_wait(&shared.own_full, 0);
  for (int head = first_head; head < first_head + heads; ++head)
    for (int block = steps.begin; block < steps.end; ++block) {
      ptx::mbarrier_wait(full + state.stage * 8, state.parity);
      const int stage = __shfl_sync(~0u, state.stage, 0);
#pragma unroll
      for (int part = 0; part < kBlock / 64; ++part) {
        const uint64_t first =
            ptx::advance_descriptor(streamed, stage * 2 * S::kBlockBytes + part * 64 * kRowBytes);
        const uint64_t second = ptx::advance_descriptor(first, S::kBlockBytes);
        const uint32_t terms  = lane_terms + stage * (2 * kBlock * 4) + part * 64 * 4;

        float p[32], ds[32];  // scores become p, dp becomes ds
        ptx::warpgroup_fence_operand(p);
        ptx::warpgroup_fence_operand(ds);
        ptx::wgmma_fence();
        multiply_rows<S>(p, own, first);
        ptx::wgmma_commit_group();
        multiply_rows<S>(ds, ptx::advance_descriptor(own, S::kOwnBytes), second);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();  // the scores
        ptx::warpgroup_fence_operand(p);

        // Keys behind the last are zeros, but exp(0 - lse) may be infinite.
        const int streamed_row = block * kBlock + part * 64, group_row = own_row + warpgroup * 64;
        const int last_key = (kOwnsKeys ? group_row : streamed_row) + 63;
        if (last_key >= a.tokens || (a.causal && last_key > (kOwnsKeys ? streamed_row : group_row))) {
#pragma unroll
          for (int e = 0; e < 32; ++e) {
            const int of_own      = row + e / 2 % 2 * 8;
            const int of_streamed = streamed_row + e / 4 * 8 + column + e % 2;
            const int key = kOwnsKeys ? of_own : of_streamed, query = kOwnsKeys ? of_streamed : of_own;
            if (key >= a.tokens || (a.causal && key > query)) p[e] = -INFINITY;
          }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          float2 lse{};
          if constexpr (kOwnsKeys) lse = ld_shared_v2(terms + j * 32);
#pragma unroll
          for (int e = 4 * j; e < 4 * j + 4; ++e) {
            const float of = kOwnsKeys ? (e % 2 ? lse.y : lse.x) : own_lse[e / 2 % 2];
            p[e]           = ptx::ex2_approx(__fmaf_rn(p[e], to_log2, -of));
          }
        }
        uint32_t p_operand[4][4], ds_operand[4][4];
        if constexpr (kOwnsKeys) {  // dv += p' d_out, while ds is computed
          pack(p_operand, p);
          fence_operands(p_operand);
          ptx::warpgroup_fence_operand(sums[S::kSums - 1]);
          ptx::wgmma_fence();
          add_rows<S>(sums[S::kSums - 1], p_operand, second);
          ptx::wgmma_commit_group();
        }
        ptx::wgmma_wait_group<kOwnsKeys ? 1 : 0>();  // dp
        ptx::warpgroup_fence_operand(ds);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          float2 delta{};
          if constexpr (kOwnsKeys) delta = ld_shared_v2(terms + kBlock * 4 + j * 32);
#pragma unroll
          for (int e = 4 * j; e < 4 * j + 4; ++e) {
            const float of = kOwnsKeys ? (e % 2 ? delta.y : delta.x) : own_delta[e / 2 % 2];
            ds[e]          = p[e] * (ds[e] - of);
          }
        }
        pack(ds_operand, ds);
        if constexpr (S::kAddsDq) {
          // As ds': row `key` of a slab has 64 queries. The 8 x 8 matrices of an A fragment are stored whole.
          const uint32_t slab = at(shared.ds) + (buffer * (kBlock / 64) + part) * S::kOwnSlab;
#pragma unroll
          for (int k = 0; k < 4; ++k)
            ptx::stmatrix_x4(
                slab + (warp * 16 + lane % 16) * kRowBytes + (((2 * k + lane / 16) ^ lane) % 8) * 16,
                ds_operand[k]);
          ptx::fence_proxy_async();  // the tensor cores see what was stored
        }
        // dk += ds' q, or dq += ds k
        fence_operands(ds_operand);
        ptx::warpgroup_fence_operand(sums[0]);
        ptx::wgmma_fence();
        add_rows<S>(sums[0], ds_operand, first);
        ptx::wgmma_commit_group();

        if (S::kAddsDq && part == kBlock / 64 - 1) {
          // Both warpgroups have stored their part of ds. The one before lies in the other buffer: a
          // warpgroup that comes to this barrier again has finished its products of this ds.
          ptx::bar_sync(1, kConsumers);
          constexpr int kByColumns = S::kHeadDim == 128;  // each warpgroup has 64 columns of dq, else 64 rows
          const uint64_t queries   = ptx::smem_descriptor_128b(
                at(shared.ds) + (buffer * (kBlock / 64) + (kByColumns ? 0 : warpgroup)) * S::kOwnSlab);
          const uint64_t keys =
              ptx::smem_descriptor_128b(at(shared.own) + (kByColumns ? warpgroup : 0) * S::kOwnSlab);
          float dq[32];
          ptx::warpgroup_fence_operand(dq);
          ptx::wgmma_fence();
#pragma unroll
          for (int k = 0; k < kOwnRows / 16; ++k)
            ptx::wgmma<ptx::Major::mn, ptx::Major::mn>(
                dq, ptx::advance_descriptor(queries, k * 16 * kRowBytes),
                ptx::advance_descriptor(keys, k * 16 * kRowBytes), k > 0);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
          ptx::warpgroup_fence_operand(dq);
          const int64_t tile = (int64_t{head} * (a.padded / kBlock) + block) * 2 + warpgroup;
          add_dq(a.dq_sums + tile * kTileSums, dq);
          buffer ^= 1;
        } else {
          ptx::wgmma_wait_group<0>();
        }
#pragma unroll
        for (auto& of_own : sums) ptx::warpgroup_fence_operand(of_own);
        if constexpr (kOwnsKeys) fence_operands(p_operand);
        fence_operands(ds_operand);
      }
      __syncwarp();  // all lanes have read this stage's terms
      if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
      state.next();
    }

  const int64_t stride = int64_t{a.heads} * S::kHeadDim;
#pragma unroll
  for (int i = 0; i < S::kSums; ++i)
    store_rows(a.gradients[i] + row * stride + own_head * S::kHeadDim + column, stride, sums[i],
               i == 0 ? a.scale : 1, a.tokens - row);
}

// lse to base 2 and delta(i) = d_out(i) . out(i) of a token and query head, a warp each; for dq by atomics
// also zeros as many sums as the row has. Rows behind the last get infinity, which makes p zero.
template <int kHeadDim>
__global__ void __launch_bounds__(256)
    delta_kernel(const bf16* out, const bf16* d_out, const float* lse, int tokens, int padded, int heads,
                 float* lse_to_base_2, float* delta, float* dq_sums) {
  const int64_t warp = (int64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
  const int token = static_cast<int>(warp / heads), head = static_cast<int>(warp % heads);
  const int lane = threadIdx.x % 32;
  if (token >= padded) return;
  const int64_t term = int64_t{head} * padded + token;
  float sum          = 0;
  if (token < tokens)
#pragma unroll
    for (int i = 0; i < kHeadDim / 64; ++i) {
      const int64_t pair = warp * (kHeadDim / 2) + i * 32 + lane;
      const float2 a     = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(out)[pair]);
      const float2 b     = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(d_out)[pair]);
      sum += a.x * b.x + a.y * b.y;
    }
  sum = warp_reduce_sum(sum);
  if (lane == 0) {
    lse_to_base_2[term] = token < tokens ? lse[int64_t{head} * tokens + token] * kLog2E : INFINITY;
    delta[term]         = sum;
  }
  if (dq_sums)
#pragma unroll
    for (int i = 0; i < kHeadDim / 64; ++i)
      reinterpret_cast<float2*>(dq_sums)[term * (kHeadDim / 2) + i * 32 + lane] = float2{};
}

// dq = scale sums, from the order of add_dq(). A thread has 8 columns of rows g and g + 8 of a warp's 16: the
// numbers of a quad of lanes, which lie together. Grid: (blocks of queries, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(512)
    convert_dq_kernel(const float* sums, int tokens, int padded, int heads, float scale, bf16* dq) {
  constexpr int kBlock = Shape<kHeadDim, Owns::keys, true>::kBlock;
  const int warpgroup = threadIdx.x / 256, warp = threadIdx.x / 64 % 4, g = threadIdx.x / 8 % 8;
  const int eight          = threadIdx.x % 8;  // columns
  const int64_t block      = int64_t{blockIdx.y} * (padded / kBlock) + blockIdx.x;
  const float4* const from = reinterpret_cast<const float4*>(sums + (block * 2 + warpgroup) * kTileSums) +
                             eight * 128 + warp * 32 + g * 4;
  float4 of_lane[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) of_lane[t] = from[t];
  const int row    = blockIdx.x * kBlock + (kHeadDim == 64 ? warpgroup * 64 : 0) + warp * 16 + g;
  const int column = (kHeadDim == 128 ? warpgroup * 64 : 0) + eight * 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= tokens) break;
    uint32_t pairs[4];
#pragma unroll
    for (int t = 0; t < 4; ++t)
      pairs[t] = h == 0 ? pack_bf16x2(of_lane[t].x * scale, of_lane[t].y * scale)
                        : pack_bf16x2(of_lane[t].z * scale, of_lane[t].w * scale);
    *reinterpret_cast<uint4*>(dq + ((row + int64_t{8} * h) * heads + blockIdx.y) * kHeadDim + column) =
        uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

CUtensorMap map_of(View<const bf16, 3> x) {
  const int64_t row = x.extent(1) * x.extent(2) * 2;
  return tensor_map(x.data(), DType::bf16,
                    {{x.extent(0), row, kBoxRows}, {x.extent(1), x.extent(2) * 2, 1}, {x.extent(2), 2, 64}},
                    Swizzle::bytes_128);
}

template <class S>
void launch(const Parameters& parameters, StreamRef stream) {
  constexpr auto kBytes = static_cast<int>(sizeof(typename S::Shared));
  static_assert(kBytes <= 232448);
  allow_shared_memory_once<backward_kernel<S>>(kBytes);
  const dim3 grid(static_cast<unsigned>(parameters.heads),
                  static_cast<unsigned>(parameters.padded / kOwnRows));
  backward_kernel<S><<<grid, S::kThreads, kBytes, stream>>>(parameters);
  FATHOM_LAUNCHED();
}

template <int kHeadDim>
void launch_backward(const FlashAttentionBackward& a, DqSums sums, float* workspace, StreamRef stream) {
  const int64_t tokens = a.q.extent(0), heads = a.q.extent(1), kv_heads = a.k.extent(1);
  const int64_t rows = padded(tokens);
  float *const lse = workspace, *const delta = lse + heads * rows;
  float* const dq_sums = sums == DqSums::atomic ? delta + heads * rows : nullptr;
  const auto n = static_cast<int>(tokens), n_padded = static_cast<int>(rows),
             n_heads = static_cast<int>(heads);
  delta_kernel<kHeadDim><<<blocks_for(rows * heads, 8), 256, 0, stream>>>(
      a.out.data(), a.d_out.data(), a.lse.data(), n, n_padded, n_heads, lse, delta, dq_sums);
  FATHOM_LAUNCHED();

  const CUtensorMap q = map_of(a.q), k = map_of(a.k), v = map_of(a.v), d_out = map_of(a.d_out);
  Parameters of_keys{.own       = {k, v},
                     .streamed  = {q, d_out},
                     .lse       = lse,
                     .delta     = delta,
                     .dq_sums   = dq_sums,
                     .gradients = {a.dk.data(), a.dv.data()},
                     .tokens    = n,
                     .padded    = n_padded,
                     .heads     = static_cast<int>(kv_heads),
                     .group     = static_cast<int>(heads / kv_heads),
                     .scale     = a.scale,
                     .causal    = a.causal};
  if (sums == DqSums::atomic) {
    launch<Shape<kHeadDim, Owns::keys, true>>(of_keys, stream);
    constexpr int kBlock = Shape<kHeadDim, Owns::keys, true>::kBlock;
    const dim3 grid(blocks_for(tokens, kBlock), static_cast<unsigned>(heads));
    convert_dq_kernel<kHeadDim>
        <<<grid, 512, 0, stream>>>(dq_sums, n, n_padded, n_heads, a.scale, a.dq.data());
    FATHOM_LAUNCHED();
    return;
  }
  launch<Shape<kHeadDim, Owns::keys, false>>(of_keys, stream);
  Parameters of_queries   = of_keys;
  of_queries.own[0]       = q;
  of_queries.own[1]       = d_out;
  of_queries.streamed[0]  = k;
  of_queries.streamed[1]  = v;
  of_queries.gradients[0] = a.dq.data();
  of_queries.heads        = n_heads;
  launch<Shape<kHeadDim, Owns::queries, false>>(of_queries, stream);
}

}  // namespace

void flash_attention_backward(const FlashAttentionBackward& a, DqSums sums, View<float, 1> workspace,
                              StreamRef stream) {
  const int64_t tokens = a.q.extent(0), heads = a.q.extent(1), kv_heads = a.k.extent(1), n = a.q.extent(2);
  const auto like = [tokens](const auto& x, int64_t its_heads, int64_t columns) {
    return x.extent(0) == tokens && x.extent(1) == its_heads && x.extent(2) == columns && x.contiguous();
  };
  FATHOM_EXPECT(n == 64 || n == 128, "attention backward: a head must have 64 or 128 dimensions");
  FATHOM_EXPECT(kv_heads > 0 && heads % kv_heads == 0,
                "attention backward: query heads must be a multiple of key-value heads");
  FATHOM_EXPECT(
      like(a.q, heads, n) && like(a.out, heads, n) && like(a.d_out, heads, n) && like(a.dq, heads, n),
      "attention backward: q, out, d_out and dq must be [T, Hq, D], contiguous");
  FATHOM_EXPECT(
      like(a.k, kv_heads, n) && like(a.v, kv_heads, n) && like(a.dk, kv_heads, n) && like(a.dv, kv_heads, n),
      "attention backward: k, v, dk and dv must be [T, Hkv, D], contiguous");
  FATHOM_EXPECT(a.lse.extent(0) == heads && a.lse.extent(1) == tokens && a.lse.contiguous(),
                "attention backward: lse must be [Hq, T], contiguous");
  FATHOM_EXPECT(a.scale > 0, "attention backward: scale must be positive");
  FATHOM_EXPECT(tokens <= int64_t{65535} * kOwnRows,
                "attention backward: at most 65535 blocks of 128 tokens");
  FATHOM_EXPECT(workspace.size() >= flash_attention_backward_workspace(tokens, heads, n, sums),
                "attention backward: the workspace is smaller than flash_attention_backward_workspace()");
  if (tokens == 0 || heads == 0) return;
  if (n == 128)
    launch_backward<128>(a, sums, workspace.data(), stream);
  else
    launch_backward<64>(a, sums, workspace.data(), stream);
}

}  // namespace fathom::kernels
