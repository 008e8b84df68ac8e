// ds = p (dp - delta); dv = p' d_out, dk = scale ds' q, dq = scale ds k                      (gradients.h)
//
// bytes   a block of 64 keys reads q and d_out of the queries in its reach from L2, and adds fp32 sums of
//         their dq there: as many bytes again. T = 8192, D = 128, causal: 0.54 GB a head
// flops   10 D a pair of a query and a key, rounded up to whole blocks
// limit   the tensor cores. mma.sync reaches some 60 % of their rate
// idea    no weight goes to memory: a CTA owns 64 keys and streams the queries, and computes scores from them
//         again. A warp has 16 keys by 32 queries of s' and dp'; p' and ds' lie in registers as the A operand
//         of the next products, with dk and dv as accumulators. Only dq sums over keys: ds goes through
//         shared memory to all warps, and sums to memory by atomics. cp.async copies the next queries
// source  Dao, FlashAttention-2, arXiv:2307.08691, 2023, algorithm 2
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "gradients.h"

namespace fathom::lab::attention_backward_gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kRows    = 64;  // of keys that a CTA owns, and of queries that it streams
constexpr float kLog2E = 1.44269504f;

// delta(i) = d_out(i) . out(i), a warp each; and zeros for the sums of dq.
__global__ void __launch_bounds__(256)
    row_delta_kernel(const __grid_constant__ Gradients p, float* delta, float* dq_sums) {
  const int64_t row = (int64_t{blockIdx.x} * 256 + threadIdx.x) / 32;  // token x heads + head
  const int lane = threadIdx.x % 32, dims = static_cast<int>(p.head_dim());
  if (row >= p.tokens() * p.heads()) return;
  float sum = 0;
  for (int d = lane; d < dims; d += 32) {
    sum +=
        static_cast<float>(p.out.data()[row * dims + d]) * static_cast<float>(p.d_out.data()[row * dims + d]);
    dq_sums[row * dims + d] = 0;
  }
  sum = warp_reduce_sum(sum);
  if (lane == 0) delta[row % p.heads() * p.tokens() + row / p.heads()] = sum;
}

// dq = scale sums
__global__ void __launch_bounds__(256)
    round_dq_kernel(const __grid_constant__ Gradients p, const float* dq_sums) {
  const int64_t at = (int64_t{blockIdx.x} * 256 + threadIdx.x) * 2;
  if (at >= p.dq.size()) return;
  const float2 sums                              = *reinterpret_cast<const float2*>(dq_sums + at);
  *reinterpret_cast<uint32_t*>(p.dq.data() + at) = pack_bf16x2(sums.x * p.scale, sums.y * p.scale);
}

// In shared memory. Piece c (16 bytes) of row r is at c ^ (r % 8), so that ldmatrix has no bank conflicts.
template <int kDims>
struct Shared {
  static constexpr int kTile = kRows * kDims * 2;      // bytes
  unsigned char own[2][kTile], streamed[2][2][kTile];  // k, v; two stages of q, d_out
  unsigned char ds[kRows * kRows * 2];                 // [key][query]
  float terms[2][2][kRows];                            // of two stages: lse to base 2, delta
};

template <int kRowBytes>
__device__ uint32_t piece_at(uint32_t tile, int row, int piece) {
  return tile + row * kRowBytes + (piece ^ row % 8) * 16;
}

// Copies rows first .. first + 64 of a head; those behind the last become zeros.
template <int kDims>
__device__ void fetch_rows(unsigned char* to, const View<const bf16, 3>& from, int first, int head) {
  constexpr int kPieces = kDims / 8;
  const int tokens      = static_cast<int>(from.extent(0));
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces, token = first + row;
    ptx::cp_async_cg(to + row * kDims * 2 + (piece ^ row % 8) * 16,
                     &from(min(token, tokens - 1), head, piece * 8), token < tokens ? 16 : 0);
  }
}

// d = own streamed': the warp's 16 rows of `own`, 32 of `streamed`.
template <int kDims>
__device__ void multiply_rows(float (&d)[4][4], uint32_t own, uint32_t streamed, int first_row) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
#pragma unroll
  for (auto& of_eight : d)
#pragma unroll
    for (float& x : of_eight) x = 0;
#pragma unroll 1  // addresses of one pass at a time: all registers are taken
  for (int k = 0; k < kDims / 16; k += 2) {
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      ptx::ldmatrix_x4(a[i], piece_at<kDims * 2>(own, row + lane % 16, 2 * (k + i) + lane / 16));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t b[4];  // dimensions 16 k .. + 32 of 8 rows
      ptx::ldmatrix_x4(b, piece_at<kDims * 2>(streamed, first_row + 8 * j + lane % 8, 2 * k + lane / 8));
      ptx::mma_m16n8k16(d[j], a[0], {b[0], b[1]});
      ptx::mma_m16n8k16(d[j], a[1], {b[2], b[3]});
    }
  }
}

// sums += a rows: 16 by kCount x 8 columns from piece `first_piece`, over 16 rows.
template <int kDims, int kCount>
__device__ void add_rows(float (&sums)[kCount][4], const uint32_t (&a)[4], uint32_t rows, int first_row,
                         int first_piece) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kCount; j += 2) {
    uint32_t b[4];
    ptx::ldmatrix_x4_trans(b, piece_at<kDims * 2>(rows, first_row + lane % 16, first_piece + j + lane / 16));
    ptx::mma_m16n8k16(sums[j], a, {b[0], b[1]});
    ptx::mma_m16n8k16(sums[j + 1], a, {b[2], b[3]});
  }
}

// The accumulators of 16 columns are the A operand of a product over these columns.
__device__ void pack(uint32_t (&to)[4], const float (&low)[4], const float (&high)[4]) {
  to[0] = pack_bf16x2(low[0], low[1]), to[1] = pack_bf16x2(low[2], low[3]);
  to[2] = pack_bf16x2(high[0], high[1]), to[3] = pack_bf16x2(high[2], high[3]);
}

__device__ void add_pair(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float2*>(to), float2{x, y});
#else
  atomicAdd(to, x);
  atomicAdd(to + 1, y);
#endif
}

// Grid: (kv heads, blocks of keys). With a mask the first blocks have the most steps.
template <int kDims>
__global__ void __launch_bounds__(kThreads, 2)
    recomputed_kernel(const __grid_constant__ Gradients p, const float* delta, float* dq_sums) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared   = *reinterpret_cast<Shared<kDims>*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own_head = static_cast<int>(blockIdx.x), own_key = static_cast<int>(blockIdx.y) * kRows;
  const int tokens = static_cast<int>(p.tokens()), heads = static_cast<int>(p.heads());
  const int group  = heads / static_cast<int>(p.kv_heads());
  const int first  = p.causal ? own_key / kRows : 0;  // block of queries
  const int blocks = (tokens + kRows - 1) / kRows - first, steps = group * blocks;
  const int key       = own_key + warp * 16 + lane / 4;  // of this lane's accumulators, and key + 8
  const float to_log2 = p.scale * kLog2E;

  // Thread i < 64 has the lse of a block's row i, thread 64 + i the delta. Rows behind the last get infinity,
  // which makes p zero.
  const auto term_of = [&](int step) {
    const int query  = (first + step % blocks) * kRows + static_cast<int>(threadIdx.x) % kRows;
    const int64_t at = int64_t{own_head * group + step / blocks} * tokens + query;
    if (threadIdx.x < kRows) return query < tokens ? p.lse.data()[at] * kLog2E : INFINITY;
    return query < tokens ? delta[at] : 0.0f;
  };
  const auto fetch = [&](int step, int stage) {
    const int head = own_head * group + step / blocks, row = (first + step % blocks) * kRows;
    fetch_rows<kDims>(shared.streamed[stage][0], p.q, row, head);
    fetch_rows<kDims>(shared.streamed[stage][1], p.d_out, row, head);
    ptx::cp_async_commit_group();
  };
  fetch_rows<kDims>(shared.own[0], p.k, own_key, own_head);
  fetch_rows<kDims>(shared.own[1], p.v, own_key, own_head);
  fetch(0, 0);
  shared.terms[0][threadIdx.x / kRows][threadIdx.x % kRows] = term_of(0);

  float dk[kDims / 8][4], dv[kDims / 8][4];
#pragma unroll
  for (int i = 0; i < kDims / 8; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) dk[i][e] = dv[i][e] = 0;
  const uint32_t k_tile = ptx::shared_address(shared.own[0]), v_tile = ptx::shared_address(shared.own[1]);
  const uint32_t ds_tile = ptx::shared_address(shared.ds);
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2;
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the queries are there, whoever copied them; and all have left the step before
    float term = 0;
    if (step + 1 < steps) {
      fetch(step + 1, 1 - stage);
      term = term_of(step + 1);
    }
    const uint32_t q     = ptx::shared_address(shared.streamed[stage][0]);
    const uint32_t d_out = ptx::shared_address(shared.streamed[stage][1]);
    const int query      = (first + step % blocks) * kRows;

    const bool all_in_reach = own_key + kRows <= tokens && (!p.causal || own_key + kRows - 1 <= query);
#pragma unroll 1  // 32 queries at a time, because dk and dv have most of the registers
    for (int part = 0; part < kRows; part += 32) {
      float s[4][4], ds[4][4];  // scores become p, dp becomes ds
      multiply_rows<kDims>(s, k_tile, q, part);
      multiply_rows<kDims>(ds, v_tile, d_out, part);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = part + 8 * j + lane % 4 * 2;
        const float2 lse = *reinterpret_cast<const float2*>(&shared.terms[stage][0][column]);
        const float2 of  = *reinterpret_cast<const float2*>(&shared.terms[stage][1][column]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int of_key = key + e / 2 * 8;
          const bool reach =
              all_in_reach || (of_key < tokens && (!p.causal || of_key <= query + column + e % 2));
          s[j][e]  = reach ? ptx::ex2_approx(__fmaf_rn(s[j][e], to_log2, -(e % 2 ? lse.y : lse.x))) : 0.0f;
          ds[j][e] = s[j][e] * (ds[j][e] - (e % 2 ? of.y : of.x));
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {  // 16 queries
        uint32_t a[4];
        pack(a, s[2 * k], s[2 * k + 1]);
        add_rows<kDims>(dv, a, d_out, part + 16 * k, 0);
        pack(a, ds[2 * k], ds[2 * k + 1]);
        add_rows<kDims>(dk, a, q, part + 16 * k, 0);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = warp * 16 + lane / 4 + i % 2 * 8, piece = part / 8 + 2 * k + i / 2;
          *reinterpret_cast<uint32_t*>(shared.ds + row * kRows * 2 + (piece ^ row % 8) * 16 + lane % 4 * 4) =
              a[i];
        }
      }
    }
    if (step + 1 < steps) shared.terms[1 - stage][threadIdx.x / kRows][threadIdx.x % kRows] = term;
    __syncthreads();  // ds of all keys is written

    // dq of this warp's 16 queries, 64 columns at a time.
    uint32_t a[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      ptx::ldmatrix_x4_trans(
          a[k], piece_at<kRows * 2>(ds_tile, 16 * k + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2));
    const int head = own_head * group + step / blocks, row = query + warp * 16 + lane / 4;
#pragma unroll 1
    for (int half = 0; half < kDims / 64; ++half) {
      float dq[8][4] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k) add_rows<kDims>(dq, a[k], k_tile, 16 * k, half * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row + 8 * h >= tokens) break;
        float* const to = dq_sums + (int64_t{row + 8 * h} * heads + head) * kDims + half * 64 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < 8; ++j) add_pair(to + 8 * j, dq[j][2 * h], dq[j][2 * h + 1]);
      }
    }
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (key + 8 * h >= tokens) break;
#pragma unroll
    for (int j = 0; j < kDims / 8; ++j) {
      const int column = 8 * j + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(&p.dk(key + 8 * h, own_head, column)) =
          pack_bf16x2(dk[j][2 * h] * p.scale, dk[j][2 * h + 1] * p.scale);
      *reinterpret_cast<uint32_t*>(&p.dv(key + 8 * h, own_head, column)) =
          pack_bf16x2(dv[j][2 * h], dv[j][2 * h + 1]);
    }
  }
}

template <int kDims>
void launch(const Gradients& p, StreamRef stream) {
  float *const delta = p.op_workspace.data(), *const dq_sums = delta + (p.heads() * p.tokens() + 3) / 4 * 4;
  row_delta_kernel<<<blocks_for(p.tokens() * p.heads(), 8), 256, 0, stream>>>(p, delta, dq_sums);
  FATHOM_LAUNCHED();
  constexpr auto kBytes = static_cast<int>(sizeof(Shared<kDims>));
  allow_shared_memory_once<recomputed_kernel<kDims>>(kBytes);
  const dim3 grid(static_cast<unsigned>(p.kv_heads()), blocks_for(p.tokens(), kRows));
  recomputed_kernel<kDims><<<grid, kThreads, kBytes, stream>>>(p, delta, dq_sums);
  FATHOM_LAUNCHED();
  round_dq_kernel<<<blocks_for(p.dq.size() / 2, 256), 256, 0, stream>>>(p, dq_sums);
  FATHOM_LAUNCHED();
}

}  // namespace

void recomputed(const Gradients& p, StreamRef stream) {
  if (p.tokens() == 0) return;
  FATHOM_EXPECT(p.tokens() <= 65535 * kRows, "blocks of keys are counted by the grid's y");
  if (p.head_dim() == 128)
    launch<128>(p, stream);
  else
    launch<64>(p, stream);
}

}  // namespace fathom::lab::attention_backward_gpu
