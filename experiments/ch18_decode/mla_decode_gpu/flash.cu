// out(t, h) = softmax(scale q(t, h) k') v        k: rows of 576 numbers, v: the first 512 of each
//
// bytes   1152 a position, once for 64 heads; 128 KiB of partial results for each CTA, written and read again
//         in L2
// flops   2176 a position and head
// limit   DRAM bandwidth up to about 90 heads. H200: 64 x 4096 positions are 302 MB, 67 us at 4.5 TB/s. In
//         fact shared memory: 8 warps read 720 KB of operands for each block of 64 positions
// idea    a CTA has 64 heads of a sequence and a share of its pages. A block of latents is in shared memory
//         once, as keys and as values. Warps w and w + 4 have 16 heads: each computes the scores of 32 of the
//         block's positions and 256 columns of the output, so they exchange maxima and weights. The next
//         block is copied meanwhile (cp.async)
// source  Dao et al., Flash-Decoding, 2023
#include <algorithm>
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/attention/mla_decode.h"
#include "mla.h"

namespace fathom::lab::mla_decode_gpu {
namespace {

constexpr int kKey = kernels::kMlaKey, kValue = kernels::kMlaValue, kHalf = kValue / 2;
constexpr int kHeads = 64, kBlock = kernels::kMlaPage, kThreads = 256;
constexpr int kRowBytes = kKey * 2, kPieces = kRowBytes / 16, kTileBytes = 64 * kRowBytes;
constexpr float kLog2E = 1.44269504f;

// The 16-byte piece c of row r of a tile lies at c ^ r % 8.
struct Shared {
  alignas(128) unsigned char q[kTileBytes], keys[2][kTileBytes], weights[kHeads * kBlock * 2];
  float max_score[2][kHeads], sum[2][kHeads];
};
static_assert(sizeof(Shared) <= 227 * 1024);

// Copies 64 rows, of which those from `valid` on become zeros.
__device__ void load_tile(unsigned char* to, const bf16* rows, int valid) {
#pragma unroll 6
  for (int i = threadIdx.x; i < 64 * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    ptx::cp_async_cg(to + row * kRowBytes + (piece ^ row % 8) * 16,
                     rows + (row < valid ? row : 0) * kKey + piece * 8, row < valid ? 16 : 0);
  }
}

// Results of a CTA, [sequences, head tiles, splits] of them, in units of 2^max.
struct Partials {
  float* out;       // [kHeads][kValue]
  float2* max_sum;  // [kHeads]

  __host__ __device__ Partials(const MlaStep& p, int64_t all, int64_t slot)
      : out(p.partials.data() + slot * kHeads * kValue),
        max_sum(reinterpret_cast<float2*>(p.partials.data() + all * kHeads * kValue) + slot * kHeads) {}
};

// Grid: (splits, tiles of heads, sequences).
__global__ void __launch_bounds__(kThreads, 1) flash_kernel(const __grid_constant__ MlaStep p) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared  = *reinterpret_cast<Shared*>(memory);
  const int split = blockIdx.x, tile = blockIdx.y, t = blockIdx.z;
  const int context = static_cast<int>(p.context), blocks = (context + kBlock - 1) / kBlock;
  const int each  = (blocks + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int first = split * each, count = max(0, min(each, blocks - first));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = warp / 4;
  const int row = warp % 4 * 16 + lane / 4;  // of the scores, and row + 8

  const auto load_block = [&](int i) {
    if (i < count)
      load_tile(shared.keys[i % 2], &p.latent(p.pages(t, first + i), 0, 0), context - (first + i) * kBlock);
    ptx::cp_async_commit_group();  // a group for each block, so that they can be counted
  };
  load_tile(shared.q, &p.q(t, tile * kHeads, 0), static_cast<int>(p.q.extent(1)) - tile * kHeads);
  load_block(0);
  load_block(1);

  // A lane's part of the operands: a row, and piece 0 or 1 of each 16 numbers along it.
  const uint32_t query = ptx::shared_address(shared.q) + (warp % 4 * 16 + lane % 16) * kRowBytes +
                         ((lane / 16) ^ (lane % 8)) * 16;
  const uint32_t weights = ptx::shared_address(shared.weights) + (warp % 4 * 16 + lane % 16) * 128 +
                           ((lane / 16) ^ (lane % 8)) * 16;
  float out[kHalf / 8][4] = {}, row_max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int i = 0; i < count; ++i) {
    ptx::cp_async_wait_group<1>();
    __syncthreads();  // all threads' copies of the block have arrived
    const uint32_t block = ptx::shared_address(shared.keys[i % 2]);
    const uint32_t keys =
        block + (half * 32 + lane % 8 + lane / 16 * 8) * kRowBytes + ((lane / 8 % 2) ^ (lane % 8)) * 16;
    float s[4][4] = {};
#pragma unroll 4
    for (int k = 0; k < kKey / 16; ++k) {
      uint32_t a[4];
      ptx::ldmatrix_x4(a, (query + k / 4 * 128) ^ (k % 4 * 32));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, (keys + n * 16 * kRowBytes + k / 4 * 128) ^ (k % 4 * 32));
        ptx::mma_m16n8k16(s[2 * n], a, {b[0], b[1]});
        ptx::mma_m16n8k16(s[2 * n + 1], a, {b[2], b[3]});
      }
    }
    const int valid = context - (first + i) * kBlock - half * 32;
    if (valid < 32) {
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n * 8 + lane % 4 * 2 + e % 2 >= valid) s[n][e] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < 4; ++n) most = fmaxf(most, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      most = quad_reduce_max(most);
      if (lane % 4 == 0) shared.max_score[half][row + 8 * h] = most;
    }
    __syncthreads();  // the maxima of both halves are stored
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + 8 * h;
      const float new_max =
          fmaxf(row_max[h], fmaxf(shared.max_score[0][r], shared.max_score[1][r]) * (kScale * kLog2E));
      factor[h]  = ptx::ex2_approx(row_max[h] - new_max);
      row_max[h] = new_max;
      sum[h] *= factor[h];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[n][e] = ptx::ex2_approx(__fmaf_rn(s[n][e], kScale * kLog2E, -new_max));
          sum[h] += s[n][e];
        }
        *reinterpret_cast<uint32_t*>(shared.weights + r * 128 + ((half * 4 + n) ^ (r % 8)) * 16 +
                                     lane % 4 * 4) = pack_bf16x2(s[n][2 * h], s[n][2 * h + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[n][e] *= factor[e / 2];
    __syncthreads();  // the weights of both halves are stored

    const uint32_t values =
        block + lane % 16 * kRowBytes + half * kHalf * 2 + ((lane / 16) ^ (lane % 8)) * 16;
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      uint32_t a[4];
      ptx::ldmatrix_x4(a, weights ^ (k * 32));
#pragma unroll
      for (int n = 0; n < kHalf / 16; ++n) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, (values + k * 16 * kRowBytes + n / 4 * 128) ^ (n % 4 * 32));
        ptx::mma_m16n8k16(out[2 * n], a, {b[0], b[1]});
        ptx::mma_m16n8k16(out[2 * n + 1], a, {b[2], b[3]});
      }
    }
    __syncthreads();  // all warps have read the block, the maxima and the weights
    load_block(i + 2);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] = quad_reduce_sum(sum[h]);
    if (lane % 4 == 0) shared.sum[half][row + 8 * h] = sum[h];
  }
  __syncthreads();  // the sums of both halves are stored
  const int64_t all = int64_t{gridDim.x} * gridDim.y * gridDim.z;
  const Partials to(p, all, (int64_t{t} * gridDim.y + tile) * gridDim.x + split);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h;
    if (half == 0 && lane % 4 == 0) to.max_sum[r] = {row_max[h], shared.sum[0][r] + shared.sum[1][r]};
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n)
      *reinterpret_cast<float2*>(to.out + r * kValue + half * kHalf + n * 8 + lane % 4 * 2) = {
          out[n][2 * h], out[n][2 * h + 1]};
  }
}

// A thread for four columns of a row. Grid: (heads, sequences).
__global__ void __launch_bounds__(kValue / 4) merge_kernel(const __grid_constant__ MlaStep p, int splits) {
  const int h = blockIdx.x, t = blockIdx.y, tiles = (static_cast<int>(gridDim.x) + kHeads - 1) / kHeads;
  const int64_t all = int64_t{splits} * tiles * gridDim.y;
  const auto of     = [&](int split) {
    return Partials(p, all, (int64_t{t} * tiles + h / kHeads) * splits + split);
  };
  float row_max = -INFINITY, sum = 0, merged[4] = {};
  for (int split = 0; split < splits; ++split) row_max = fmaxf(row_max, of(split).max_sum[h % kHeads].x);
  for (int split = 0; split < splits; ++split) {
    const float2 max_sum = of(split).max_sum[h % kHeads];
    const float4 four    = reinterpret_cast<const float4*>(of(split).out + h % kHeads * kValue)[threadIdx.x];
    const float factor   = ptx::ex2_approx(max_sum.x - row_max);  // 0 for a split without pages
    sum += factor * max_sum.y;
    merged[0] += factor * four.x;
    merged[1] += factor * four.y;
    merged[2] += factor * four.z;
    merged[3] += factor * four.w;
  }
  const float inverse                                    = 1 / sum;
  reinterpret_cast<uint2*>(&p.out(t, h, 0))[threadIdx.x] = {
      pack_bf16x2(merged[0] * inverse, merged[1] * inverse),
      pack_bf16x2(merged[2] * inverse, merged[3] * inverse)};
}

}  // namespace

void flash(const MlaStep& p, StreamRef stream) {
  const int64_t sequences = p.q.extent(0), heads = p.q.extent(1), tiles = (heads + kHeads - 1) / kHeads;
  if (p.out.size() == 0) return;
  if (p.context == 0) {
    FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
    return;
  }
  // As many splits as CTAs fit at once, one on a multiprocessor.
  const int64_t splits = std::clamp<int64_t>(multiprocessors() / (sequences * tiles), 1, p.pages.extent(1));
  FATHOM_EXPECT(
      sequences <= 65535 && sequences * tiles * splits * kHeads * (kValue + 2) <= p.partials.extent(0),
      "flash: the workspace holds the results of 320 CTAs");
  allow_shared_memory_once<flash_kernel>(sizeof(Shared));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(sequences));
  flash_kernel<<<grid, kThreads, sizeof(Shared), stream>>>(p);
  FATHOM_LAUNCHED();
  merge_kernel<<<dim3(static_cast<unsigned>(heads), static_cast<unsigned>(sequences)), kValue / 4, 0,
                 stream>>>(p, static_cast<int>(splits));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::mla_decode_gpu
