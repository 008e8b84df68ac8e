// D = W x^T for packed weights W (kernels/gemm/packed_weights.h) and many rows of x: the warp-specialised
// main loop of dense products (linear_gemm.cu) and of experts (kernels/moe/experts_grouped_gemm.cu).
//
// A CTA computes work tiles: some 64-row groups of W times up to kColumns rows of x. Two producer warps load,
// two to four consumer warpgroups multiply, each its own groups. They exchange the stages of a pipeline in
// shared memory through mbarriers: `full` completes when a stage's bytes have arrived, `empty` when all
// consumer warps have released it. Weights arrive in their packed order (the tiles of a group follow one
// another along K), rows of x by TMA in boxes of 64 columns with the 128-byte swizzle. wgmma takes weights
// from registers and x from shared memory: a weight tile of 64 x 64 is four wgmmas of 16 columns. While the
// wgmmas of one tile run, their warpgroup loads and dequantises its next tile.
//
// A tile of few rows can be multiplied with fewer columns (kColumnStep).
//
// flops   2 for each weight and each row of x. Of these a tile has a multiple of kColumnStep; what is missing
//         is multiplied too
// limit   few rows: bytes of weights, and in MXFP4 the instructions that dequantise them; many rows: tensor
//         cores, as long as x and W come from L2 in time. For each 64 columns, 40 or 48 KiB make 192 x 128 or
//         192 x 192 sums in bf16, 25 KiB make 256 x 128 in MXFP4
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "kernels/gemm/packed_weights.h"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/quant/mxfp4_dequantize.cuh"

namespace fathom::kernels::wgmma_gemm {

inline constexpr int kMaxSplitK = 8;                        // CTAs of a cluster: what every GPU supports
inline constexpr int kStep      = static_cast<int>(kTile);  // columns of a tile

// kColumns             rows of x in a work tile, at most: N of wgmma
// kWarpgroups          consumer warpgroups
// kGroupsPerWarpgroup  64-row groups of W that each of them computes, with 64 kColumns / 128 accumulators of
//                      each group in every thread
// kTilesPerStage       weight tiles of a group, along K, in a stage
// kStages              stages of the pipeline
// kCtasPerSm           CTAs on a multiprocessor
// kColumnStep          a work tile of few rows is multiplied with the least multiple of this that is enough
template <int kColumns_, int kWarpgroups_, int kGroupsPerWarpgroup_, int kTilesPerStage_, int kStages_,
          int kCtasPerSm_, int kColumnStep_ = kColumns_>
struct TileShape {
  static constexpr int kColumns = kColumns_, kWarpgroups = kWarpgroups_,
                       kGroupsPerWarpgroup = kGroupsPerWarpgroup_, kTilesPerStage = kTilesPerStage_,
                       kStages = kStages_, kCtasPerSm = kCtasPerSm_, kColumnStep = kColumnStep_;
  // Sums and two sets of fragments of more columns are too many registers for three warpgroups.
  static constexpr int kFragmentSets = kWarpgroups == 3 && kColumns * kGroupsPerWarpgroup > 128 ? 1 : 2;
  static_assert(kColumns % kColumnStep == 0);

  static constexpr int kGroups          = kGroupsPerWarpgroup * kWarpgroups;
  static constexpr int kConsumerThreads = 128 * kWarpgroups;
  // The producer warps are the first two of a warpgroup that gives most of its registers to the consumers.
  static constexpr bool kReallocateRegisters = kCtasPerSm == 1;
  static constexpr int kThreads              = kConsumerThreads + (kReallocateRegisters ? 128 : 64);
  static constexpr int kRegistersAtLaunch = 65536 / kThreads / 8 * 8, kProducerRegisters = 56,
                       kConsumerRegisters = (kRegistersAtLaunch * (kWarpgroups + 1) - kProducerRegisters) /
                                            kWarpgroups / 8 * 8;

  // Boxes without a row are not loaded.
  static constexpr int kBoxRows   = kColumns <= 64               ? 16
                                    : kColumnStep < kColumns / 2 ? kColumnStep
                                                                 : kColumns / 2;
  static constexpr int kBoxBytes  = kBoxRows * kStep * 2;
  static constexpr int kSlabBytes = kColumns * kStep * 2;  // x of one weight tile
};

// Where weight tiles lie in memory, and how a thread gets its A fragments of one from shared memory.
struct DenseTiles {
  const bf16* tiles;

  static constexpr int kTileBytes = static_cast<int>(PackedMatrix::kTileBytes), kScaleBytes = 0;

  __device__ const void* tile(int64_t index) const { return tiles + index * (kTileBytes / 2); }
  __device__ const void* scale(int64_t) const { return nullptr; }

  // Byte offset of a thread's fragments within a tile, and of its scales.
  __device__ static int thread_offset() {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    return (warp * 4 * 32 + lane) * 16;
  }
  __device__ static int scale_thread_offset() { return 0; }

  __device__ static void fragments(uint32_t at, uint32_t, uint32_t (&a)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint4 v = ptx::ld_shared_v4(at + s * 512);
      a[s][0] = v.x, a[s][1] = v.y, a[s][2] = v.z, a[s][3] = v.w;
    }
  }
};

struct Mxfp4Tiles {
  const uint8_t* tiles;
  const uint8_t* scales;

  static constexpr int kTileBytes  = static_cast<int>(PackedExperts::kTileBytes),
                       kScaleBytes = static_cast<int>(PackedExperts::kScaleBytes);

  __device__ const void* tile(int64_t index) const { return tiles + index * kTileBytes; }
  __device__ const void* scale(int64_t index) const { return scales + index * kScaleBytes; }

  __device__ static int thread_offset() { return threadIdx.x % 128 * 16; }
  __device__ static int scale_thread_offset() { return threadIdx.x % 128 / 4 * 4; }

  __device__ static void fragments(uint32_t at, uint32_t scale_at, uint32_t (&a)[4][4]) {
    const uint4 words = ptx::ld_shared_v4(at);
    uint32_t of[4];
    unpack_scales(ptx::ld_shared(scale_at), of);
    dequantize_fragment(words.x, of[0], of[2], a[0]);
    dequantize_fragment(words.y, of[0], of[2], a[1]);
    dequantize_fragment(words.z, of[1], of[3], a[2]);
    dequantize_fragment(words.w, of[1], of[3], a[3]);
  }
};

struct WorkTile {
  int64_t first_weight_tile;  // index of the first group's first weight tile
  int64_t depth;              // tiles of a group, along K
  int begin, end;             // the tiles along K to multiply
  int group;                  // the first group's first packed row is 64 group
  int groups;                 // up to TileShape::kGroups; warpgroups without a group idle
  int row, rows;              // rows of x: the first, and how many, up to TileShape::kColumns
  int expert;
};

// Stages in shared memory: [stages] rows of x in slabs of one tile, [stages][groups] weight tiles, and
// [stages][groups] their scales.
template <class S, class Tiles>
struct Pipeline {
  uint8_t* memory;
  uint64_t *full, *empty;  // [kStages]

  static constexpr int kXBytes      = S::kTilesPerStage * S::kSlabBytes,
                       kWeightBytes = S::kTilesPerStage * Tiles::kTileBytes,
                       kScaleBytes  = S::kTilesPerStage * Tiles::kScaleBytes;
  static constexpr int kBytes       = S::kStages * (kXBytes + S::kGroups * (kWeightBytes + kScaleBytes));

  __device__ uint8_t* x(int stage) const { return memory + stage * kXBytes; }
  __device__ uint8_t* weights(int stage, int group) const {
    return memory + S::kStages * kXBytes + (stage * S::kGroups + group) * kWeightBytes;
  }
  __device__ uint8_t* scales(int stage, int group) const {
    return memory + S::kStages * (kXBytes + S::kGroups * kWeightBytes) +
           (stage * S::kGroups + group) * kScaleBytes;
  }
};

// The two producer warps. All lanes call these; one elected lane issues the copies. `scheduler` has the work
// tiles: count(), tile(i), and this CTA's first() and step().
template <class S, class Tiles, class Scheduler>
__device__ void load_weights(const Tiles& tiles, const Scheduler& scheduler,
                             const Pipeline<S, Tiles>& pipeline) {
  const bool elected = threadIdx.x % 32 == 0;
  PipelineState<S::kStages> state;
  for (int i = scheduler.first(); i < scheduler.count(); i += scheduler.step()) {
    const WorkTile work = scheduler.tile(i);
    if (!elected) continue;
    for (int k = work.begin; k < work.end; k += S::kTilesPerStage, state.next()) {
      const int n    = min(S::kTilesPerStage, work.end - k);
      uint64_t* full = &pipeline.full[state.stage];
      ptx::mbarrier_wait(&pipeline.empty[state.stage], state.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, n * work.groups * (Tiles::kTileBytes + Tiles::kScaleBytes));
#pragma unroll
      for (int group = 0; group < S::kGroups; ++group) {
        if (group >= work.groups) break;
        const int64_t tile = work.first_weight_tile + group * work.depth + k;
        ptx::cp_async_bulk_load(pipeline.weights(state.stage, group), tiles.tile(tile), n * Tiles::kTileBytes,
                                full);
        if constexpr (Tiles::kScaleBytes > 0)
          ptx::cp_async_bulk_load(pipeline.scales(state.stage, group), tiles.scale(tile),
                                  n * Tiles::kScaleBytes, full);
      }
    }
  }
}

template <class S, class Tiles, class Scheduler>
__device__ void load_x(const CUtensorMap& x, const Scheduler& scheduler, const Pipeline<S, Tiles>& pipeline) {
  const bool elected = threadIdx.x % 32 == 0;
  PipelineState<S::kStages> state;
  for (int i = scheduler.first(); i < scheduler.count(); i += scheduler.step()) {
    const WorkTile work = scheduler.tile(i);
    const int boxes     = (work.rows + S::kBoxRows - 1) / S::kBoxRows;
    if (!elected) continue;
    for (int k = work.begin; k < work.end; k += S::kTilesPerStage, state.next()) {
      const int n    = min(S::kTilesPerStage, work.end - k);
      uint64_t* full = &pipeline.full[state.stage];
      ptx::mbarrier_wait(&pipeline.empty[state.stage], state.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, n * boxes * S::kBoxBytes);
#pragma unroll
      for (int slab = 0; slab < S::kTilesPerStage; ++slab) {
        if (slab >= n) break;
#pragma unroll
        for (int box = 0; box < S::kColumns / S::kBoxRows; ++box) {
          if (box >= boxes) break;
          ptx::cp_async_bulk_tensor_load(pipeline.x(state.stage) + slab * S::kSlabBytes + box * S::kBoxBytes,
                                         &x, work.row + box * S::kBoxRows, (k + slab) * kStep, full);
        }
      }
    }
  }
}

// The first of the groups that this consumer warpgroup multiplies: kGroupsPerWarpgroup adjacent ones.
template <class S>
__device__ int first_group() {
  return threadIdx.x / 128 * S::kGroupsPerWarpgroup;
}

// d += a x for a weight tile in a and the first `rows` rows of x, with kN columns or a narrower multiple of
// kColumnStep. `rows` must be known to be uniform. What each branch starts it also closes as a group, or
// ptxas would wait for every wgmma.
template <class S, int kN>
__device__ void start_products(int rows, float (&d)[S::kColumns / 2], const uint32_t (&a)[4][4], uint64_t x) {
  if constexpr (kN > S::kColumnStep)
    if (rows <= kN - S::kColumnStep) return start_products<S, kN - S::kColumnStep>(rows, d, a, x);
  auto& sums = reinterpret_cast<float(&)[kN / 2]>(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s) ptx::wgmma(sums, a[s], ptx::advance_descriptor(x, 32 * s), true);
  ptx::wgmma_commit_group();
}

// The sums of a warpgroup's groups of a work tile, in d. By a consumer warpgroup. Everything that varies
// within a stage is a compile-time constant, because instruction issue limits dequantisation.
template <class S, class Tiles>
__device__ void multiply_tile(const WorkTile& work, const Pipeline<S, Tiles>& pipeline,
                              PipelineState<S::kStages>& state,
                              float (&d)[S::kGroupsPerWarpgroup][S::kColumns / 2]) {
  // Successive tiles of a stage alternate between sets of fragments: wgmma reads one set while the next is
  // made. Stages of a single tile are processed two at a time. Where registers are enough for one set only,
  // the products of the other warpgroups run while this one loads its next fragments.
  constexpr int kTiles        = S::kTilesPerStage * S::kGroupsPerWarpgroup;
  constexpr int kSets         = S::kFragmentSets == 1 ? 1 : kTiles == 3 ? 3 : 2;
  constexpr int kStagesAtOnce = kSets > 1 && kTiles == 1 ? 2 : 1;
  static_assert(kTiles * kStagesAtOnce % kSets == 0, "every stage begins with the first set");
  using Stages          = Pipeline<S, Tiles>;
  const bool first_lane = threadIdx.x % 32 == 0;
  const uint32_t full   = ptx::opaque(ptx::shared_address(pipeline.full));
  const uint32_t empty  = ptx::opaque(ptx::shared_address(pipeline.empty));
  const uint32_t weights =
      ptx::opaque(ptx::shared_address(pipeline.weights(0, first_group<S>()) + Tiles::thread_offset()));
  const uint32_t scales =
      ptx::opaque(ptx::shared_address(pipeline.scales(0, first_group<S>()) + Tiles::scale_thread_offset()));
  const uint64_t x = ptx::opaque(ptx::smem_descriptor_128b(ptx::shared_address(pipeline.x(0))));
#pragma unroll
  for (int m = 0; m < S::kGroupsPerWarpgroup; ++m) {
#pragma unroll
    for (float& sum : d[m]) sum = 0;
    ptx::warpgroup_fence_operand(d[m]);
  }

  // Addresses of the current stage.
  uint32_t stage_weights = 0, stage_scales = 0;
  uint64_t stage_x       = 0;
  const auto begin_stage = [&] {
    ptx::mbarrier_wait(full + state.stage * 8, state.parity);
    stage_weights = weights + state.stage * (S::kGroups * Stages::kWeightBytes);
    stage_scales  = scales + state.stage * (S::kGroups * Stages::kScaleBytes);
    // The shuffle tells the compiler that the stage is warp-uniform. wgmma wants its descriptor in uniform
    // registers.
    stage_x = ptx::advance_descriptor(x, __shfl_sync(~0u, state.stage, 0) * Stages::kXBytes);
  };
  uint32_t a[kSets][4][4];
  const int rows = __shfl_sync(~0u, work.rows, 0);  // uniform
  // Starts the wgmmas of tile `i` of a stage for group m, with fragments in a[set].
  const auto start = [&](int i, int m, int set) {
    const int tile = m * S::kTilesPerStage + i;  // index among the warpgroup's tiles of this stage
    Tiles::fragments(stage_weights + tile * Tiles::kTileBytes, stage_scales + tile * Tiles::kScaleBytes,
                     a[set]);
    start_products<S, S::kColumns>(rows, d[m], a[set], ptx::advance_descriptor(stage_x, i * S::kSlabBytes));
  };
  int done = -1;  // the stage whose last wgmmas are in flight
  int k    = work.begin;
  for (; k + S::kTilesPerStage * kStagesAtOnce <= work.end; k += S::kTilesPerStage * kStagesAtOnce) {
#pragma unroll
    for (int of = 0; of < kStagesAtOnce; ++of) {
      begin_stage();
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int set = (of + tile) % kSets, before = (set + kSets - 1) % kSets;
        start(tile / S::kGroupsPerWarpgroup, tile % S::kGroupsPerWarpgroup, set);
        ptx::wgmma_wait_group<(kSets > 1 ? 1 : 0)>();  // the previous tile, or this one, is done
#pragma unroll
        for (int s = 0; s < 4; ++s) ptx::warpgroup_fence_operand(a[before][s]);
        if (tile == 0 && done >= 0 && first_lane) ptx::mbarrier_arrive(empty + done * 8);
      }
      done = state.stage;
      if constexpr (kSets == 1) {
        if (first_lane) ptx::mbarrier_arrive(empty + done * 8);
        done = -1;
      }
      state.next();
    }
  }
  ptx::wgmma_wait_group<0>();
  if (done >= 0 && first_lane) ptx::mbarrier_arrive(empty + done * 8);

  if (S::kTilesPerStage * kStagesAtOnce > 1 && k < work.end) {  // the last stage is not full
    begin_stage();
    for (int i = 0; k + i < work.end; ++i)
#pragma unroll
      for (int m = 0; m < S::kGroupsPerWarpgroup; ++m) {
        start(i, m, 0);
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (int s = 0; s < 4; ++s) ptx::warpgroup_fence_operand(a[0][s]);
      }
    if (first_lane) ptx::mbarrier_arrive(empty + state.stage * 8);
    state.next();
  }
#pragma unroll
  for (int m = 0; m < S::kGroupsPerWarpgroup; ++m) ptx::warpgroup_fence_operand(d[m]);
}

// For a warpgroup without a group in this work tile: releases the stages unread.
template <class S, class Tiles>
__device__ void skip_tile(const WorkTile& work, const Pipeline<S, Tiles>& pipeline,
                          PipelineState<S::kStages>& state) {
  for (int k = work.begin; k < work.end; k += S::kTilesPerStage, state.next()) {
    ptx::mbarrier_wait(&pipeline.full[state.stage], state.parity);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&pipeline.empty[state.stage]);
  }
}

// Passes kCount sums of a group to the epilogue: v[i] has those of columns 8 (j + i) .. 8 (j + i) + 8. All
// operands are read before anything is stored, so that the loads overlap.
template <int kCount, class Epilogue>
__device__ void store_columns(const WorkTile& work, int group, int j, const float4 (&v)[kCount],
                              const Epilogue& epilogue) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int p         = (work.group + group) * kStep + warp * 16 + lane / 4;
  const auto t        = [&](int i) { return 8 * (j + i) + lane % 4 * 2; };
  const auto operands = [&](int i, int next) {
    return epilogue.read(p, work.row + min(t(i) + next, work.rows - 1));
  };
  typename Epilogue::Operands left[kCount], right[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) left[i] = operands(i, 0), right[i] = operands(i, 1);
  if (8 * (j + kCount) <= work.rows) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      epilogue(p, work.row + t(i), v[i].x, v[i].z, left[i]);
      epilogue(p, work.row + t(i) + 1, v[i].y, v[i].w, right[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (t(i) < work.rows) epilogue(p, work.row + t(i), v[i].x, v[i].z, left[i]);
      if (t(i) + 1 < work.rows) epilogue(p, work.row + t(i) + 1, v[i].y, v[i].w, right[i]);
    }
  }
}

template <class S, class Epilogue>
__device__ void store_accumulators(const WorkTile& work, int group, const float (&d)[S::kColumns / 2],
                                   const Epilogue& epilogue) {
  // As many as the registers that the sums leave have room for.
  constexpr bool kManyOperands = sizeof(typename Epilogue::Operands) > 8;
  constexpr int kAtOnce        = S::kColumns > 128                           ? kManyOperands ? 3 : 2
                                 : S::kWarpgroups == 2 && S::kCtasPerSm == 1 ? 4
                                                                             : 2;
#pragma unroll
  for (int j = 0; j < S::kColumns / 8; j += kAtOnce) {
    if (8 * j >= work.rows) break;
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* of = d + 4 * (j + i);
      v[i]            = make_float4(of[0], of[1], of[2], of[3]);
    }
    store_columns(work, group, j, v, epilogue);
  }
}

// Split-K: adds the sums of a cluster's CTAs, each over its part of K, in the order of the CTAs, and stores
// them. CTA `rank` of `size` stores every size-th group of eight columns. By all consumer threads; producers
// call cluster_sync() as often.
__device__ inline void cluster_sync() {
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();
}
template <class S, class Tiles, class Epilogue>
__device__ void reduce_splits(const WorkTile& work, const Pipeline<S, Tiles>& pipeline, int rank, int size,
                              const float (&d)[S::kGroupsPerWarpgroup][S::kColumns / 2],
                              const Epilogue& epilogue) {
  static_assert(S::kGroups * S::kColumns * kStep * 4 <= Pipeline<S, Tiles>::kBytes);
  constexpr int kColumnGroups = S::kColumns / 8;
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  const auto at = [&](int group, int j) { return ((group * kColumnGroups + j) * 128 + thread) * 16; };

  ptx::bar_sync(1, S::kConsumerThreads);  // all consumers have left the pipeline
#pragma unroll
  for (int m = 0; m < S::kGroupsPerWarpgroup; ++m)
#pragma unroll
    for (int j = 0; j < kColumnGroups; ++j)
      *reinterpret_cast<float4*>(pipeline.memory + at(first_group<S>() + m, j)) =
          make_float4(d[m][4 * j], d[m][4 * j + 1], d[m][4 * j + 2], d[m][4 * j + 3]);
  cluster_sync();  // every CTA's sums are in its shared memory

  const uint32_t memory = ptx::shared_address(pipeline.memory);
  for (int group = warpgroup; group < work.groups; group += S::kWarpgroups)
    for (int j = rank; 8 * j < work.rows; j += size) {
      float4 partial[kMaxSplitK], sum[1] = {};
#pragma unroll
      for (int cta = 0; cta < kMaxSplitK; ++cta)
        if (cta < size)
          partial[cta] = ptx::ld_shared_cluster_v4(ptx::mapa_shared_cluster(memory + at(group, j), cta));
#pragma unroll
      for (int cta = 0; cta < kMaxSplitK; ++cta)
        if (cta < size) {
          sum[0].x += partial[cta].x, sum[0].y += partial[cta].y;
          sum[0].z += partial[cta].z, sum[0].w += partial[cta].w;
        }
      store_columns(work, group, j, sum, epilogue);
    }
  cluster_sync();  // no CTA exits while others read its shared memory
}

// The sums of a warpgroup to its epilogue: one for each sum (kernels/gemm/epilogue.cuh), or one that has
// store_tile() for all sums.
template <class S, class Epilogue>
__device__ void store_tile(const WorkTile& work, const float (&d)[S::kGroupsPerWarpgroup][S::kColumns / 2],
                           const Epilogue& epilogue) {
  if constexpr (requires { epilogue.store_tile(work, d); }) {
    epilogue.store_tile(work, d);
  } else {
#pragma unroll
    for (int m = 0; m < S::kGroupsPerWarpgroup; ++m) {
      const int group = first_group<S>() + m;
      if (group >= work.groups) break;
      store_accumulators<S>(work, group, d[m], epilogue);
    }
  }
}

// `epilogues.of<S>(work, shared)` is the work tile's epilogue.
template <class S, class Tiles, class Scheduler, class Epilogues>
__global__ void __launch_bounds__(S::kThreads, S::kCtasPerSm)
    wgmma_gemm_kernel(const __grid_constant__ CUtensorMap x, Tiles tiles, Scheduler scheduler,
                      Epilogues epilogues) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  __shared__ typename Scheduler::Shared shared;
  __shared__ typename Epilogues::Shared epilogue_shared;
  const Pipeline<S, Tiles> pipeline{memory, full, empty};
  const bool is_producer = threadIdx.x >= S::kConsumerThreads;

  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(&x);
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&full[s], 2);  // both producer warps
      ptx::mbarrier_init(&empty[s], S::kConsumerThreads / 32);
    }
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async();  // TMA sees the initialised barriers
  }
  const bool is_weight_producer = static_cast<int>(threadIdx.x) / 32 == S::kConsumerThreads / 32;
  if constexpr (Scheduler::kTilesKnownOnHost) {
    __syncthreads();  // barriers are initialised. Weights need not wait for the previous kernel
    if (!is_weight_producer) ptx::griddepcontrol_wait();
  } else {
    ptx::griddepcontrol_wait();
    scheduler.begin(shared);
    __syncthreads();  // barriers, and what `scheduler` keeps in shared memory, are ready
  }

  if (is_producer) {
    if constexpr (S::kReallocateRegisters) ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (is_weight_producer) load_weights(tiles, scheduler, pipeline);
    if (static_cast<int>(threadIdx.x) / 32 == S::kConsumerThreads / 32 + 1) {
      load_x(x, scheduler, pipeline);
      __syncwarp();
      ptx::griddepcontrol_launch_dependents();
    }
    if constexpr (Scheduler::kMaySplitK)
      if (scheduler.splits() > 1) {
        __syncwarp();
        cluster_sync();
        cluster_sync();
      }
  } else {
    if constexpr (S::kReallocateRegisters) ptx::setmaxnreg_inc<S::kConsumerRegisters>();
    float d[S::kGroupsPerWarpgroup][S::kColumns / 2];
    PipelineState<S::kStages> state;
    for (int i = scheduler.first(); i < scheduler.count(); i += scheduler.step()) {
      const WorkTile work = scheduler.tile(i);
      const bool idle     = first_group<S>() >= work.groups;
      const auto epilogue = epilogues.template of<S>(work, epilogue_shared);
      if (idle)
        skip_tile(work, pipeline, state);
      else
        multiply_tile(work, pipeline, state, d);
      if constexpr (Scheduler::kMaySplitK)
        if (scheduler.splits() > 1) {
          reduce_splits(work, pipeline, scheduler.split(), scheduler.splits(), d, epilogue);
          break;
        }
      if (!idle) store_tile<S>(work, d, epilogue);
    }
  }
}

// ---- launches ----

template <class S, class Tiles>
inline constexpr int kPipelineBytes = Pipeline<S, Tiles>::kBytes;

// `ctas` of them; consecutive ones form clusters of `splits`.
template <class S, class Tiles, class Scheduler, class Epilogues>
void launch_gemm(View<const bf16, 2> x, const Tiles& tiles, const Scheduler& scheduler,
                 const Epilogues& epilogues, int64_t ctas, int splits, StreamRef stream) {
  constexpr auto* kKernel = wgmma_gemm_kernel<S, Tiles, Scheduler, Epilogues>;
  allow_shared_memory_once<kKernel>(kPipelineBytes<S, Tiles>);
  FATHOM_EXPECT(x.stride(1) == 1 && x.extent(0) <= INT32_MAX / 2, "wgmma_gemm: rows of x are contiguous");
  const CUtensorMap map = tensor_map(x.data(), DType::bf16, x.extent(0), x.extent(1), x.stride(0) * 2,
                                     S::kBoxRows, kStep, Swizzle::bytes_128);
  launch_with_pdl(kKernel, static_cast<unsigned>(ctas), S::kThreads, kPipelineBytes<S, Tiles>, splits, stream,
                  map, tiles, scheduler, epilogues);
}

}  // namespace fathom::kernels::wgmma_gemm
