// out(t, h) = sum_j p(j) v(j) / sum_j p(j),  p(j) = exp(scale q(t, h) . k(j)),  v(j) = the first 512 of k(j)
//
// bytes   1152 for each position, once for 64 query heads; each piece of a sequence that is cut costs
//         128 KiB of partial results, mostly in L2
// flops   2176 for each position and each of 64 heads
// limit   DRAM bandwidth up to about 90 heads, then the tensor cores (mla_decode.h)
// idea    64 query heads are the rows of wgmma. Their 64 x 512 outputs do not fit one warpgroup, so two
//         warpgroups have 256 columns each, and a third one computes scores and weights. The tensor cores
//         multiply the next block's keys while this block's exponentials are computed. Two blocks of 64
//         positions are in shared memory, 72 KiB each; a warpgroup that has used its part of a block loads
//         that part of the next block but one, so there is no warp for loads, whose registers are needed. A
//         block's weights take the place of the rotary part of its keys, which only the scores need. The
//         outputs are rescaled only once a maximum has grown by a factor of 2^kSlack. Every CTA has as many
//         blocks as every other (kernels/attention/kv_ranges.cuh)
// source  FlashMLA, DeepSeek, 2025 (halves of the output, blocks of 64, equal payload); Ye et al.,
//         FlashInfer, 2025; FlashAttention-4 (the late rescaling)
#include <algorithm>
#include <cmath>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "kernels/attention/kv_ranges.cuh"
#include "kernels/attention/mla_decode.h"

namespace fathom::kernels {
namespace {

constexpr int kHeads      = 64;        // rows of a CTA
constexpr int kBlock      = kMlaPage;  // positions
constexpr int kBox        = 64;        // columns of a TMA box: 128 bytes
constexpr int kBoxes      = kMlaKey / kBox;
constexpr int kValueBoxes = kMlaValue / kBox, kHalfBoxes = kValueBoxes / 2;
constexpr int kBoxBytes = kBlock * kBox * 2;
constexpr int kStages   = 2;
constexpr int kHalf     = kMlaValue / 2;  // columns of an output warpgroup
constexpr int kLeast    = 2;              // blocks of a part
constexpr float kLog2E  = 1.44269504f;
constexpr float kSlack  = 8;  // a weight is at most 2^8
static_assert(kBoxes == kValueBoxes + 1 && kBoxBytes == kHeads * kBlock * 2,
              "the weights of a block fit in the place of its last box");

constexpr int kWarpgroup = 128, kThreads = 3 * kWarpgroup;
constexpr int kScores = 2;  // of the warpgroups; 0 and 1 have a half of the output each

struct MlaDecode {
  const int32_t* contexts;
  const int32_t* pages;
  int64_t pages_stride;
  bf16* out;
  float* partial_out;       // [head tiles, parts, 2][kHeads][kMlaValue], in units of 2^max
  float2* partial_max_sum;  // [head tiles, parts, 2][kHeads]
  float scale;              // times log2(e)
  int sequences, heads, parts;

  __device__ int blocks(int sequence) const { return (max(0, contexts[sequence]) + kBlock - 1) / kBlock; }
  __device__ int64_t slot(int head_tile, int part, bool begins_item) const {
    return int64_t{2} * head_tile * parts + slot_of_piece(part, begins_item);
  }
};

// The parts of a block, each loaded by the warpgroup of that number: the boxes of a half of the values, and
// the rotary box, in whose place the weights come.
constexpr int kParts = 3;
__device__ constexpr int boxes_of(int part) { return part == kScores ? 1 : kHalfBoxes; }

struct Shared {
  alignas(1024) unsigned char q[kBoxes][kBoxBytes];
  alignas(1024) unsigned char keys[kStages][kBoxes][kBoxBytes];
  float factor[kStages][kHeads];    // by which a block rescales the outputs
  float2 max_sum[kStages][kHeads];  // of a piece, with its last block
  uint64_t q_full, full[kStages][kParts], weights_full[kStages], weights_read[kStages];
  KvRangeScratch<kThreads> range;
};
static_assert(sizeof(Shared) <= 227 * 1024);

// Loads a part of the CTA's blocks, one after another. By one thread.
class PartLoader {
 public:
  __device__ PartLoader(const CUtensorMap& latent, const MlaDecode& o, const KvRange& range, int part,
                        Shared& shared)
      : latent_(latent),
        o_(o),
        shared_(shared),
        part_(part),
        item_(range.item),
        block_(range.first),
        blocks_(o.blocks(range.item)),
        left_(range.count),
        page_(page()) {}

  // The sequence of the block that was loaded last.
  __device__ int loaded_item() const { return loaded_item_; }

  __device__ void load_next() {
    if (left_ == 0) return;
    const int stage = loaded_++ % kStages;
    uint64_t* full  = &shared_.full[stage][part_];
    ptx::mbarrier_arrive_expect_tx(full, boxes_of(part_) * kBoxBytes);
    for (int box = part_ * kHalfBoxes; box < part_ * kHalfBoxes + boxes_of(part_); ++box)
      ptx::cp_async_bulk_tensor_load(shared_.keys[stage][box], &latent_, page_ * kBlock, box * kBox, full);
    loaded_item_ = item_;
    if (--left_ == 0) return;
    if (++block_ == blocks_) {
      block_ = 0;
      do blocks_ = o_.blocks(++item_);
      while (blocks_ == 0);  // a block is left, so a later sequence has it
    }
    page_ = page();  // read long before it is used
  }

 private:
  __device__ int page() const { return o_.pages[item_ * o_.pages_stride + block_]; }

  const CUtensorMap& latent_;
  const MlaDecode& o_;
  Shared& shared_;
  int part_, item_, block_, blocks_, left_, page_, loaded_ = 0, loaded_item_ = 0;
};
static_assert(kScores * kHalfBoxes == kBoxes - 1);

// Thread 32 w + 4 g + t of the warpgroup has rows 16 w + g and 16 w + g + 8 of the scores (cuda/wgmma.cuh).
__device__ void score(const CUtensorMap& q, const CUtensorMap& latent, const MlaDecode& o,
                      const KvRange& range, Shared& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = warp * 16 + lane / 4;
  const bool loads            = threadIdx.x % kWarpgroup == 0;
  const uint64_t q_operand    = ptx::smem_descriptor_128b(ptx::shared_address(shared.q));
  const uint64_t keys_operand = ptx::smem_descriptor_128b(ptx::shared_address(shared.keys));
  const auto load_q           = [&](int sequence) {
    ptx::mbarrier_arrive_expect_tx(&shared.q_full, kBoxes * kBoxBytes);
    for (int box = 0; box < kBoxes; ++box)
      ptx::cp_async_bulk_tensor_load(shared.q[box], &q, sequence, static_cast<int>(blockIdx.x) * kHeads,
                                               box * kBox, &shared.q_full);
  };
  PartLoader loader(latent, o, range, kScores, shared);
  if (loads) {
    load_q(range.item);
    for (int i = 0; i < kStages; ++i) loader.load_next();
  }
  // stmatrix: rows 0 .. 8 and 8 .. 16 of a 16-byte piece, then those of the next piece.
  const int store_row = warp * 16 + lane % 16;
  int n = 0, pieces = 0;  // of this CTA
  range.for_each_piece(
      [&](int i) { return o.blocks(i); },
      [&](int sequence, int first, int count, int) {
        const int context = o.contexts[sequence];
        float row_max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
        ptx::mbarrier_wait(&shared.q_full, pieces++ & 1);
        for (int i = 0; i < count; ++i, ++n) {
          const int s         = n % kStages;
          const bool last     = i == count - 1;
          const uint64_t keys = ptx::advance_descriptor(keys_operand, s * kBoxes * kBoxBytes);
          float scores[kBlock / 2];
#pragma unroll
          for (int box = 0; box < kBoxes; ++box) {
            if (box % kHalfBoxes == 0) {  // the products of a part begin once it is there
              ptx::mbarrier_wait(&shared.full[s][box / kHalfBoxes], n / kStages & 1);
              ptx::wgmma_fence();
            }
#pragma unroll
            for (int k = 0; k < kBox / 16; ++k)
              ptx::wgmma(scores, ptx::advance_descriptor(q_operand, box * kBoxBytes + k * 32),
                         ptx::advance_descriptor(keys, box * kBoxBytes + k * 32), box + k > 0);
          }
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
          ptx::warpgroup_fence_operand(scores);
          if (loads && n > 0) {  // blocks 0 and 1 were loaded before
            const int before = n - 1;
            ptx::mbarrier_wait(&shared.weights_read[before % kStages], before / kStages & 1);
            loader.load_next();
          }
          __syncwarp();
          const int valid = context - (first + i) * kBlock;
          if (valid < kBlock) {
#pragma unroll
            for (int j = 0; j < kBlock / 2; ++j)
              if (j / 4 * 8 + lane % 4 * 2 + j % 2 >= valid) scores[j] = -INFINITY;
          }

          float factor[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float block_max = -INFINITY;
#pragma unroll
            for (int j = 2 * h; j < kBlock / 2; j += 4)
              block_max = fmaxf(block_max, fmaxf(scores[j], scores[j + 1]));
            block_max           = quad_reduce_max(block_max) * o.scale;
            const float new_max = block_max > row_max[h] + kSlack ? block_max : row_max[h];
            factor[h]           = ptx::ex2_approx(row_max[h] - new_max);
            row_max[h]          = new_max;
            sum[h] *= factor[h];
#pragma unroll
            for (int j = 2 * h; j < kBlock / 2; j += 4)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                scores[j + e] = ptx::ex2_approx(__fmaf_rn(scores[j + e], o.scale, -new_max));
                sum[h] += scores[j + e];
              }
          }

          ptx::bar_sync(1 + kScores, kWarpgroup);  // all warps' products have read q and the rotary box
          if (last && loads && n + 1 < range.count) load_q(loader.loaded_item());  // block n + 1
          const uint32_t to = ptx::shared_address(shared.keys[s][kBoxes - 1]) + store_row * 128;
#pragma unroll
          for (int k = 0; k < kBlock / 16; ++k) {
            const float* of           = scores + 8 * k;
            const uint32_t weights[4] = {pack_bf16x2(of[0], of[1]), pack_bf16x2(of[2], of[3]),
                                         pack_bf16x2(of[4], of[5]), pack_bf16x2(of[6], of[7])};
            ptx::stmatrix_x4(to + ((2 * k + lane / 16) ^ (store_row % 8)) * 16, weights);
          }
          if (last) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              sum[h] = quad_reduce_sum(sum[h]);
              if (lane % 4 == 0) shared.max_sum[s][row + 8 * h] = {row_max[h], sum[h]};
            }
          }
          if (lane % 4 == 0) {
            shared.factor[s][row]     = factor[0];
            shared.factor[s][row + 8] = factor[1];
          }
          ptx::fence_proxy_async();  // the tensor cores see the weights
          __syncwarp();              // and the warp's other lanes have stored theirs
          if (lane == 0) ptx::mbarrier_arrive(&shared.weights_full[s]);
        }
      });
}

// Stores a thread's part of two rows, `row` and `row` + 8 of the head tile.
__device__ void store_piece(const MlaDecode& o, const float (&out)[kHalf / 2], const float2 (&max_sum)[2],
                            int sequence, int row, int column, bool whole, bool begins_item) {
  const int tile = blockIdx.x;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int of_tile = row + 8 * h, head = tile * kHeads + of_tile;
    if (head >= o.heads) continue;
    if (whole) {
      const float inverse = 1 / max_sum[h].y;
      auto* to            = reinterpret_cast<uint32_t*>(
          o.out + (static_cast<int64_t>(sequence) * o.heads + head) * kMlaValue + column);
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j)
        to[4 * j] = pack_bf16x2(out[4 * j + 2 * h] * inverse, out[4 * j + 2 * h + 1] * inverse);
    } else {
      const int64_t at = o.slot(tile, static_cast<int>(blockIdx.y), begins_item) * kHeads + of_tile;
      auto* to         = reinterpret_cast<float2*>(o.partial_out + at * kMlaValue + column);
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) to[4 * j] = {out[4 * j + 2 * h], out[4 * j + 2 * h + 1]};
      if (column == 0) o.partial_max_sum[at] = max_sum[h];
    }
  }
}

// `half` 0 or 1: columns of the output.
__device__ void add_values(const CUtensorMap& latent, const MlaDecode& o, const KvRange& range, int half,
                           Shared& shared) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = warp * 16 + lane / 4;
  const uint64_t weights_operand = ptx::smem_descriptor_128b(ptx::shared_address(shared.keys[0][kBoxes - 1]));
  const uint64_t values_operand =
      ptx::smem_descriptor_128b(ptx::shared_address(shared.keys[0][half * kHalfBoxes]), kBoxBytes);
  const bool loads = threadIdx.x % kWarpgroup == 0;
  PartLoader loader(latent, o, range, half, shared);
  if (loads)
    for (int i = 0; i < kStages; ++i) loader.load_next();
  int n = 0;  // of this CTA
  range.for_each_piece(
      [&](int i) { return o.blocks(i); },
      [&](int sequence, int first, int count, int blocks) {
        const int context = o.contexts[sequence];
        float out[kHalf / 2];
#pragma unroll
        for (float& x : out) x = 0;
        float2 max_sum[2];
        for (int i = 0; i < count; ++i, ++n) {
          const int s = n % kStages, parity = n / kStages & 1;
          ptx::mbarrier_wait(&shared.weights_full[s], parity);
          ptx::mbarrier_wait(&shared.full[s][half], parity);  // complete, as the scores needed it
          const float factor[2] = {shared.factor[s][row], shared.factor[s][row + 8]};
          if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
            for (int j = 0; j < kHalf / 2; ++j) out[j] *= factor[j / 2 % 2];
          }
          const int valid = context - (first + i) * kBlock;
          if (valid < kBlock) {
            // Behind the context is anything. Weights there are 0, but 0 times NaN is NaN.
            const int pieces = (kBlock - valid) * 8;  // of 16 bytes, in each box
            for (int piece = threadIdx.x % kWarpgroup; piece < kHalfBoxes * pieces; piece += kWarpgroup)
              reinterpret_cast<uint4*>(
                  shared.keys[s][half * kHalfBoxes + piece / pieces])[valid * 8 + piece % pieces] = {};
            ptx::fence_proxy_async();             // the tensor cores see the zeros
            ptx::bar_sync(1 + half, kWarpgroup);  // zeroed by all threads
          }
          if (i == count - 1) {
            max_sum[0] = shared.max_sum[s][row];
            max_sum[1] = shared.max_sum[s][row + 8];
          }

          const int stage_bytes = s * kBoxes * kBoxBytes;
          ptx::warpgroup_fence_operand(out);
          ptx::wgmma_fence();
#pragma unroll
          for (int k = 0; k < kBlock / 16; ++k)
            ptx::wgmma<ptx::Major::k, ptx::Major::mn>(
                out, ptx::advance_descriptor(weights_operand, stage_bytes + k * 32),
                ptx::advance_descriptor(values_operand, stage_bytes + k * 2048), true);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
          ptx::warpgroup_fence_operand(out);
          if (lane == 0) ptx::mbarrier_arrive(&shared.weights_read[s]);
          ptx::bar_sync(1 + half, kWarpgroup);  // all warps' products have read the values
          if (loads) loader.load_next();
          __syncwarp();
        }
        store_piece(o, out, max_sum, sequence, row, half * kHalf + lane % 4 * 2, count == blocks, first == 0);
      });
}

// Grid: (tiles of kHeads heads, parts).
__global__ void __launch_bounds__(kThreads, 1)
    mla_decode_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap latent,
                      const __grid_constant__ MlaDecode o) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&q);
    ptx::prefetch_tensormap(&latent);
    ptx::mbarrier_init(&shared.q_full, 1);
    for (int s = 0; s < kStages; ++s) {
      for (uint64_t& full : shared.full[s]) ptx::mbarrier_init(&full, 1);
      ptx::mbarrier_init(&shared.weights_full[s], kWarpgroup / 32);
      ptx::mbarrier_init(&shared.weights_read[s], 2 * kWarpgroup / 32);
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
  }
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  // Its barriers also make the initialised mbarriers visible to all threads.
  const KvRange range = range_of_part<kThreads>(
      static_cast<int>(blockIdx.y), o.parts, kLeast, o.sequences, [&](int i) { return o.blocks(i); },
      shared.range);
  if (range.count == 0) return;

  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == kScores)
    score(q, latent, o, range, shared);
  else
    add_values(latent, o, range, warpgroup, shared);
}

// Merges the pieces of sequences that were cut, and zeroes rows without a context. A warp for each row and
// head; grid: (heads / warps, T).
constexpr int kMergeThreads = 256, kMergeWarps = kMergeThreads / 32;
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ MlaDecode o) {
  __shared__ KvRangeScratch<kMergeThreads> scratch;
  constexpr int kQuads = kMlaValue / 128;  // float4 a lane
  const int lane = threadIdx.x % 32, sequence = blockIdx.y;
  const int head       = static_cast<int>(blockIdx.x * kMergeWarps + threadIdx.x / 32);
  const auto blocks_of = [&](int i) { return o.blocks(i); };
  ptx::griddepcontrol_wait();
  const int total  = sum_of_blocks<kMergeThreads>(o.sequences, blocks_of, scratch);
  const int start  = sum_of_blocks<kMergeThreads>(sequence, blocks_of, scratch);
  const int blocks = o.blocks(sequence);
  if (head >= o.heads) return;
  auto* const out =
      reinterpret_cast<uint2*>(o.out + (static_cast<int64_t>(sequence) * o.heads + head) * kMlaValue) + lane;
  if (blocks == 0) {
    for (int quad = 0; quad < kQuads; ++quad) out[32 * quad] = {};
    return;
  }
  const KvParts parts = parts_of_item(start, blocks, blocks_per_part(total, o.parts, kLeast));
  if (parts.first == parts.last) return;
  const auto at = [&](int part) {
    return o.slot(head / kHeads, part, part == parts.first) * kHeads + head % kHeads;
  };
  float row_max = -INFINITY;
  for (int part = parts.first + lane; part <= parts.last; part += 32)
    row_max = fmaxf(row_max, o.partial_max_sum[at(part)].x);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, other));
  float sum = 0, merged[kQuads][4] = {};
#pragma unroll 2
  for (int part = parts.first; part <= parts.last; ++part) {
    const float2 max_sum = o.partial_max_sum[at(part)];
    const float factor   = ptx::ex2_approx(max_sum.x - row_max);
    const auto* from     = reinterpret_cast<const float4*>(o.partial_out + at(part) * kMlaValue) + lane;
    sum += factor * max_sum.y;
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const float4 four = from[32 * quad];
      merged[quad][0] += factor * four.x;
      merged[quad][1] += factor * four.y;
      merged[quad][2] += factor * four.z;
      merged[quad][3] += factor * four.w;
    }
  }
  const float inverse = 1 / sum;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad)
    out[32 * quad] = {pack_bf16x2(merged[quad][0] * inverse, merged[quad][1] * inverse),
                      pack_bf16x2(merged[quad][2] * inverse, merged[quad][3] * inverse)};
}

}  // namespace

void mla_decode(View<const bf16, 3> q, View<const bf16, 3> latent, View<const int32_t, 1> contexts,
                View<const int32_t, 2> pages, float scale, View<float, 1> workspace, View<bf16, 3> out,
                StreamRef stream) {
  const int64_t rows = q.extent(0), heads = q.extent(1);
  FATHOM_EXPECT(q.extent(2) == kMlaKey && q.contiguous() && out.contiguous() && out.extent(0) == rows &&
                    out.extent(1) == heads && out.extent(2) == kMlaValue,
                "mla_decode: q must be contiguous [T, H, 576] and out [T, H, 512]");
  FATHOM_EXPECT(latent.contiguous() && latent.extent(1) == kMlaPage && latent.extent(2) == kMlaKey,
                "mla_decode: latents must be contiguous [pages, 64, 576]");
  FATHOM_EXPECT(
      contexts.extent(0) == rows && contexts.contiguous() && pages.extent(0) == rows && pages.stride(1) == 1,
      "mla_decode: each sequence has a context and a row of pages");
  FATHOM_EXPECT(heads >= 1 && heads <= 2 * kHeads && rows <= 65535 && scale > 0,
                "mla_decode: 1 to 128 heads, at most 65535 sequences, scale > 0");
  FATHOM_EXPECT(latent.extent(0) < (int64_t{1} << 25) && rows * pages.extent(1) < (int64_t{1} << 30),
                "mla_decode: positions are counted in 31 bits");
  FATHOM_EXPECT(workspace.extent(0) >= kMlaWorkspace && workspace.contiguous(),
                "mla_decode: the workspace needs kMlaWorkspace floats");
  if (rows == 0) return;
  const int head_tiles = static_cast<int>((heads + kHeads - 1) / kHeads);
  MlaDecode o          = {};
  o.contexts           = contexts.data();
  o.pages              = pages.data();
  o.pages_stride       = pages.stride(0);
  o.out                = out.data();
  o.partial_out        = workspace.data();
  o.partial_max_sum    = reinterpret_cast<float2*>(workspace.data() + kMlaMaxCtas * 2 * kHeads * kMlaValue);
  o.scale              = scale * kLog2E;
  o.sequences          = static_cast<int>(rows);
  o.heads              = static_cast<int>(heads);
  o.parts              = std::max(1, std::min(multiprocessors(), static_cast<int>(kMlaMaxCtas)) / head_tiles);

  if (latent.extent(0) > 0) {
    const CUtensorMap q_map =
        tensor_map(q.data(), DType::bf16,
                   {{rows, heads * kMlaKey * 2, 1}, {heads, kMlaKey * 2, kHeads}, {kMlaKey, 2, kBox}},
                   Swizzle::bytes_128);
    const CUtensorMap latent_map = tensor_map(latent.data(), DType::bf16, latent.extent(0) * kBlock, kMlaKey,
                                              kMlaKey * 2, kBlock, kBox, Swizzle::bytes_128);
    allow_shared_memory_once<mla_decode_kernel>(sizeof(Shared));
    launch_with_pdl(mla_decode_kernel,
                    dim3(static_cast<unsigned>(head_tiles), static_cast<unsigned>(o.parts)), dim3(kThreads),
                    sizeof(Shared), stream, q_map, latent_map, o);
  }
  launch_with_pdl(merge_kernel, dim3(blocks_for(heads, kMergeWarps), static_cast<unsigned>(rows)),
                  dim3(kMergeThreads), 0, stream, o);
}

}  // namespace fathom::kernels
