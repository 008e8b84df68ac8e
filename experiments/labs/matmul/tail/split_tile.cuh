// A persistent product whose tiles may be split along k among CTAs. What a CTA does, and in which order, is
// its schedule: data_parallel.cu, split_k.cu, stream_k.cu, one_tile_stream_k.cu.
//
// Who adds up the parts of a tile (Fixup), through slots of scratch memory in fp32:
//   owner     the CTA of the part that begins at k = 0. The others write their sums and set a flag.
//   together  all write their sums, wait for each other, and each adds and stores some slices of the tile.
// Both add in the order of k, so that a product has the same bits in every run.
//
// The rest is the rung ping_pong of labs/matmul:bf16: a producer warp, and two consumer warpgroups that take
// the CTA's parts in turn. While one writes, adds or stores sums, the other multiplies.
#pragma once

#include <cuda.h>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/tensor_map.h"
#include "experiments/labs/matmul/bf16/wgmma_tile.cuh"
#include "experiments/labs/matmul/gemm.h"
#include "experiments/labs/matmul/tail/stream_k_schedule.h"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/store_box.cuh"
#include "kernels/gemm/tile_order.cuh"

namespace fathom::lab::matmul {

inline constexpr int kTileM = 128, kTileN = 128, kHalves = kTileM / 64;  // 64 rows are a wgmma
inline constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);
inline constexpr int kABytes = kTileM * kDepth * 2, kStageBytes = kABytes + kTileN * kDepth * 2;
inline constexpr int kStages = 6, kBoxBytes = 64 * 64 * 2, kBoxes = 2;  // boxes of a warpgroup, used in turn
inline constexpr int kSharedBytes = kStages * kStageBytes + kConsumers * kBoxes * kBoxBytes;
inline constexpr int kTurn        = 1 + kConsumers;  // named barriers: a warpgroup's turn at the tensor cores
inline constexpr int kSlotBytes = kTileM * kTileN * 4, kMostSlots = 512;

enum class Fixup { owner, together };

// For an owner, whether a slot is written: set by the CTA that writes it, cleared by the one that waits for
// it. For `together`, at the slot of a tile's first part: how many of its CTAs have written, plus how many
// have seen that all have; the last to see it clears it. So every launch finds and leaves zeros. (One launch
// at a time: they share slots.)
static __device__ uint32_t arrived[kMostSlots];

using Sums = float[kHalves][kTileN / 2];

struct Matrix {
  bf16* data;
  int rows, columns;

  // Of an even column and the next.
  __device__ void store_two(int row, int column, float a, float b) const {
    if (row >= rows || column >= columns) return;
    *reinterpret_cast<__nv_bfloat162*>(data + int64_t{row} * columns + column) = __floats2bfloat162_rn(a, b);
  }
};

// The slot's layout is that of the registers: thread t of the warpgroup has the sums 4 j .. 4 j + 3 of its
// 128 at j * 128 + t.
__device__ inline void write_slot(float4* slot, const Sums& sums, int barrier) {
  float4* const to = slot + threadIdx.x % 128;
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j) {
      const float* const v = &sums[half][4 * j];
      __stcg(&to[(half * kTileN / 8 + j) * 128], float4{v[0], v[1], v[2], v[3]});
    }
  ptx::bar_sync(barrier, 128);  // all of the slot is written
  // The whole slot is visible before the flag that the leader sets next.
  if (threadIdx.x % 128 == 0) __threadfence();
}

__device__ inline void contribute(float4* slot, uint32_t* flag, const Sums& sums, int barrier) {
  write_slot(slot, sums, barrier);
  if (threadIdx.x % 128 == 0) *static_cast<volatile uint32_t*>(flag) = 1;
}

// Writes a slot, and waits until all `parts` CTAs of the tile have. The wait ends: each of these CTAs gets a
// multiprocessor sooner or later (launch_split_tiles), and none of their warpgroups waits for another CTA
// before this.
__device__ inline void contribute_and_wait(float4* slot, uint32_t* count, uint32_t parts, const Sums& sums,
                                           int barrier) {
  write_slot(slot, sums, barrier);
  if (threadIdx.x % 128 == 0) {
    atomicAdd(count, 1);
    while (*static_cast<volatile uint32_t*>(count) < parts) __nanosleep(20);
    __threadfence();
  }
  ptx::bar_sync(barrier, 128);  // the leader has seen all arrive
}

// The wait ends: the part needs nothing of this CTA, it was begun earlier (the schedules see to it), and its
// CTA has a multiprocessor (launch_split_tiles).
__device__ inline void add_slot(const float4* slot, uint32_t* flag, Sums& sums, int barrier) {
  if (threadIdx.x % 128 == 0) {
    while (*static_cast<volatile uint32_t*>(flag) == 0) __nanosleep(32);
    __threadfence();
    *flag = 0;
  }
  ptx::bar_sync(barrier, 128);  // the leader has seen the flag
  const float4* const from = slot + threadIdx.x % 128;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    float4 part[kTileN / 8];  // all loads of a half are in flight together
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j) part[j] = __ldcg(&from[(half * kTileN / 8 + j) * 128]);
#pragma unroll
    for (int j = 0; j < kTileN / 8; ++j) {
      float* const sum = &sums[half][4 * j];
      sum[0] += part[j].x, sum[1] += part[j].y, sum[2] += part[j].z, sum[3] += part[j].w;
    }
  }
}

// A slice is 16 columns of one half of a tile.
inline constexpr int kSlices = kHalves * kTileN / 16;

// Adds a slice over the slots of `parts` parts, from `slot` on, and stores it at the tile's first row and
// column.
__device__ inline void add_and_store_slice(const float4* slot, int parts, int slice, const Matrix& out,
                                           int row, int column) {
  const float4* const from = slot + slice * 2 * 128 + threadIdx.x % 128;
  float4 sums[2]           = {};
#pragma unroll 8  // the loads of eight parts are in flight together
  for (int part = 0; part < parts; ++part)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float4 v = __ldcg(&from[int64_t{part} * (kSlotBytes / 16) + j * 128]);
      sums[j].x += v.x, sums[j].y += v.y, sums[j].z += v.z, sums[j].w += v.w;
    }
  // The layout of wgmma's sums: a warp has 16 rows, and a thread two of them and two columns of each eight.
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  row += slice / (kTileN / 16) * 64 + warp * 16 + lane / 4;
  column += slice % (kTileN / 16) * 16 + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    out.store_two(row, column + 8 * j, sums[j].x, sums[j].y);
    out.store_two(row + 8, column + 8 * j, sums[j].z, sums[j].w);
  }
}

// Nanoseconds on a clock that all multiprocessors share; it starts again after 18 minutes.
__device__ inline double now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return static_cast<double>(now & ((uint64_t{1} << 40) - 1));
}

// `times`: when each CTA began and ended, for the experiment's metrics.
template <Fixup fixup, class Schedule>
__global__ void __launch_bounds__(kThreads, 1)
    split_tile_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                      const __grid_constant__ CUtensorMap out_boxes, Matrix out, kernels::TileOrder order,
                      Schedule schedule, float4* slots, double* times) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    times[2 * blockIdx.x] = now_ns();
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, 1);  // one warpgroup reads a stage
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), cta = static_cast<int>(blockIdx.x);
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x != kConsumers * 128) return;
    kernels::PipelineState<kStages> state;
    for (int i = 0; i < schedule.count(cta); ++i) {
      const Part part = schedule.part(cta, i);
      const int row = order.row(part.tile) * kTileM, column = order.column(part.tile) * kTileN;
      for (int block = part.begin; block < part.end; ++block, state.next()) {
        uint8_t* const to    = stages + state.stage * kStageBytes;
        uint64_t* const done = &full[state.stage];
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(done, kStageBytes);
        ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, done);
        ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, done);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<232>();
  const bool leader    = threadIdx.x % 128 == 0;
  const int barrier    = 1 + warpgroup;  // of this warpgroup
  const uint32_t at    = ptx::shared_address(stages);
  const uint64_t of_a  = ptx::smem_descriptor_128b(at);
  const uint64_t of_b  = ptx::smem_descriptor_128b(at + kABytes);
  uint8_t* const boxes = stages + kStages * kStageBytes + warpgroup * kBoxes * kBoxBytes;
  const auto slot      = [&](int s) { return slots + int64_t{s} * (kSlotBytes / 16); };
  Sums sums;
  const int parts = schedule.count(cta);
  int first_block = 0;  // of a part, among all blocks of this CTA: they take the stages one after another
  for (int i = 0; i < parts; ++i) {
    const Part part = schedule.part(cta, i);
    const int begin = first_block, end = begin + part.end - part.begin;
    first_block = end;
    if (i % kConsumers != warpgroup) continue;
    // Its turn: the other has started all products of the part before, and waits for the last of them.
    if (i > 0) ptx::bar_sync(kTurn + warpgroup, kConsumers * 128);
    int before = -1;  // the stage whose products are in flight
    for (int block = begin; block < end; ++block) {
      ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
      const int stage = __shfl_sync(~0u, block % kStages, 0), offset = stage * kStageBytes;
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        start_products(ptx::advance_descriptor(of_a, offset + half * 64 * kDepth * 2),
                       ptx::advance_descriptor(of_b, offset), sums[half], block > begin);
      ptx::wgmma_wait_group<kHalves>();
      if (leader && before >= 0) ptx::mbarrier_arrive(&empty[before]);
      before = stage;
    }
    if (i + 1 < parts) ptx::bar_arrive(kTurn + (1 - warpgroup), kConsumers * 128);
    ptx::wgmma_wait_group<0>();
    if (leader) ptx::mbarrier_arrive(&empty[before]);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) ptx::warpgroup_fence_operand(sums[half]);

    const int row = order.row(part.tile) * kTileM, column = order.column(part.tile) * kTileN;
    if (fixup == Fixup::together && part.others > 0) {
      const int first_slot = part.first_slot - 1, all = part.others + 1;  // with that of k = 0
      uint32_t* const count = &arrived[first_slot];
      contribute_and_wait(slot(part.slot), count, all, sums, barrier);
      for (int slice = part.slot - first_slot; slice < kSlices; slice += all)
        add_and_store_slice(slot(first_slot), all, slice, out, row, column);
      if (leader && atomicAdd(count, 1) == 2 * all - 1) *count = 0;
      continue;
    }
    if (part.begin > 0) {
      contribute(slot(part.slot), &arrived[part.slot], sums, barrier);
      continue;
    }
    for (int other = 0; other < part.others; ++other) {
      const int s = part.first_slot + other * part.slot_step;
      add_slot(slot(s), &arrived[s], sums, barrier);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int box = 0; box < kTileN / 64; ++box) {
        uint8_t* const to = boxes + box % kBoxes * kBoxBytes;
        // TMA has read what this box held before; only the leader can know.
        if (leader) ptx::cp_async_bulk_wait_group_read<kBoxes - 1>();
        ptx::bar_sync(barrier, 128);
        kernels::write_box<bf16>(ptx::shared_address(to), sums[half], box);
        ptx::fence_proxy_async();
        ptx::bar_sync(barrier, 128);  // all of the box is written
        if (leader) {
          ptx::cp_async_bulk_tensor_store(&out_boxes, row + half * 64, column + box * 64, to);
          ptx::cp_async_bulk_commit_group();
        }
      }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
  // Both warpgroups have ended.
  ptx::bar_sync(kTurn + kConsumers, kConsumers * 128);
  if (threadIdx.x == 0) times[2 * blockIdx.x + 1] = now_ns();
}

// What a launcher needs to make its schedule.
struct Tiles {
  kernels::TileOrder order;
  int count, blocks;  // tiles of out; blocks of k

  explicit Tiles(const Gemm& p)
      : order{static_cast<int>(blocks_for(p.m, kTileM)), static_cast<int>(blocks_for(p.n, kTileN)), 16},
        count(order.count()),
        blocks(static_cast<int>(blocks_for(p.k, kDepth))) {}
};

// At most as many CTAs as multiprocessors: one fits on each, and those that wait for others do not keep them
// away.
template <Fixup fixup = Fixup::owner, class Schedule>
void launch_split_tiles(const Gemm& p, const Tiles& tiles, int ctas, const Schedule& schedule, int slots,
                        StreamRef stream) {
  FATHOM_EXPECT(ctas <= multiprocessors() && 2 * ctas <= p.times.size() && slots <= kMostSlots &&
                    int64_t{slots} * kSlotBytes <= p.scratch.bytes(),
                "the partial tiles of this product do not fit in the scratch memory (fewer columns)");
  constexpr auto* kernel = split_tile_kernel<fixup, Schedule>;
  allow_shared_memory_once<kernel>(kSharedBytes);
  const auto map = [](const auto& x, int64_t rows, int64_t columns, int box_rows) {
    return tensor_map(x.data(), DType::bf16, rows, columns, 2 * columns, box_rows, kDepth,
                      Swizzle::bytes_128);
  };
  kernel<<<ctas, kThreads, kSharedBytes, stream>>>(
      map(p.a, p.m, p.k, kTileM), map(p.b, p.n, p.k, kTileN), map(p.out, p.m, p.n, 64),
      Matrix{p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n)}, tiles.order, schedule,
      reinterpret_cast<float4*>(p.scratch.data()), p.times.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
