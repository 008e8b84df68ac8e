// The kernels of a grouped GEMM over experts (kernels/moe/experts_grouped_gemm.h), for work tiles of any
// shape. One persistent CTA on each multiprocessor, or two, iterates over the tiles of
// kernels/moe/expert_tiles.cuh. Main loop, bytes and flops: kernels/gemm/wgmma_mainloop.cuh.
//
// Where experts have many rows, the tensor cores should never wait. A tile of 256 weight rows and 128 rows of
// x over K = 2880 takes them 46,080 cycles: 64 for each m64n128k16. Besides, there are
//
//   issue     a warp dequantises its part of a 64 x 64 tile by 66 instructions. Two warps share a scheduler:
//             132 of the 512 cycles that the tensor cores take for the tiles of both
//   epilogue  each thread has 64 units, or 128 sums: 2,000 to 3,000 cycles, and more if it waits for bias,
//             row numbers and routing weights: 5 to 15 % of the time, as both warpgroups store at once. They
//             are loaded before the main loop
//   rows      the last tile of an expert is half empty in the mean: 64 of 1,024 rows are 6 %. In steps of 32
//             columns (TileShape::kColumnStep) it is 16 rows
//   groups    5760 rows are 22.5 tiles of 256, 2880 are 11.25. A warpgroup has adjacent groups, so in the
//             last tile one warpgroup has all the work, and the other one goes on to its next tile
//   L2        25 KiB a CTA for each 64 columns, 1,024 cycles: 24 bytes a cycle, half of what L2 delivers
#pragma once

#include <cstdint>

#include "cuda/multiprocessors.h"
#include "kernels/gemm/wgmma_mainloop.cuh"
#include "kernels/moe/expert_tiles.cuh"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"

namespace fathom::kernels::wgmma_gemm {

struct SwigluEpilogues {
  struct Shared {};

  SwigluEpilogue epilogue;  // with the biases of all experts
  int64_t rows;

  template <class S>
  __device__ SwigluEpilogue of(const WorkTile& tile, Shared&) const {
    SwigluEpilogue of_expert = epilogue;
    of_expert.bias += tile.expert * rows;
    return of_expert;
  }
};

struct WeightedEpilogues {
  struct Shared {};

  WeightedEpilogue epilogue;  // with the biases of all experts
  int64_t rows;
  const int32_t* sorted_ids;
  const float* weights;

  struct OfExpert {
    WeightedEpilogue epilogue;
    const int32_t* sorted_ids;
    const float* weights;

    struct Operands {
      WeightedEpilogue::Operands bias;
      int expert_row;
      float weight;
    };
    __device__ Operands read(int p, int i) const {
      return {epilogue.read(p), sorted_ids[i], weights[sorted_ids[i]]};
    }
    __device__ void operator()(int p, int, float low, float high, const Operands& operands) const {
      epilogue(p, operands.expert_row, low, high, operands.weight, operands.bias);
    }
  };

  template <class S>
  __device__ OfExpert of(const WorkTile& tile, Shared&) const {
    OfExpert of_expert{epilogue, sorted_ids, weights};
    of_expert.epilogue.bias += tile.expert * rows;
    return of_expert;
  }
};

// Epilogues of all sums that a warpgroup has of a work tile, for shapes with two groups of a warpgroup. What
// they read is loaded before the main loop. A thread has rows p and p + 8 of each group. (A profile tells the
// kernels apart by SwigluEpilogue and WeightedEpilogue in their names: model/gpu_step_cost.h.)
struct GroupRows {
  int groups;  // of the tile, for this warpgroup: 2 or less
  int p[2];    // of each group; where there is none, of one that exists

  __device__ explicit GroupRows(const WorkTile& work) {
    const int before = threadIdx.x / 128 * 2, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    groups = min(work.groups - before, 2);
    for (int m = 0; m < 2; ++m)
      p[m] = (work.group + min(before + m, work.groups - 1)) * kStep + warp * 16 + lane / 4;
  }
};

struct SwigluEpiloguesOfTiles {
  struct Shared {};

  SwigluEpilogues all;

  struct OfTile {
    SwigluEpilogue epilogue;
    SwigluEpilogue::Operands bias[2];
    GroupRows rows;

    template <int kSums>
    __device__ void store_tile(const WorkTile& work, const float (&d)[2][kSums]) const {
      const int t    = threadIdx.x % 4 * 2;  // this thread's first column
      bf16* to       = epilogue.a + (work.row + t) * epilogue.units + rows.p[0] / 16 * 8 + rows.p[0] % 8;
      const int left = work.rows - t;
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j, to += 8 * epilogue.units) {  // eight columns
        if (j % 4 == 0 && 8 * j >= work.rows) break;
#pragma unroll
        for (int next = 0; next < 2; ++next)
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            const float value = epilogue.value(d[m][4 * j + next], d[m][4 * j + 2 + next], bias[m]);
            ptx::st_global_if(8 * j + next < left && m < rows.groups,
                              to + next * epilogue.units + m * (kStep / 2), to_bf16_bits(value));
          }
      }
    }
  };

  template <class S>
  __device__ OfTile of(const WorkTile& work, Shared&) const {
    SwigluEpilogues::Shared none;
    const SwigluEpilogue epilogue = all.of<S>(work, none);
    const GroupRows rows(work);
    return {epilogue, {epilogue.read(rows.p[0], 0), epilogue.read(rows.p[1], 0)}, rows};
  }
};

struct WeightedEpiloguesOfTiles {
  // An expert row's number and weight.
  struct Row {
    int expert_row;
    float weight;
  };
  struct Shared {
    alignas(16) Row rows[2][128];  // of each warpgroup's work tile
  };

  WeightedEpilogues all;

  struct OfTile {
    WeightedEpilogue epilogue;
    WeightedEpilogue::Operands bias[2];
    GroupRows rows;
    Row row;  // of row threadIdx.x % 128 of x
    Row* shared;

    template <int kSums>
    __device__ void store_tile(const WorkTile& work, const float (&d)[2][kSums]) const {
      const int barrier = 2 + threadIdx.x / 128, t = threadIdx.x % 4 * 2;
      ptx::bar_sync(barrier, 128);  // this warpgroup has read the rows of its tile before
      shared[threadIdx.x % 128] = row;
      ptx::bar_sync(barrier, 128);  // all rows are there
      bool stores[4];               // rows.p[0] + 0, 8, 64, 72
#pragma unroll
      for (int r = 0; r < 4; ++r)
        stores[r] = r / 2 < rows.groups && rows.p[0] + r / 2 * kStep + r % 2 * 8 < epilogue.hidden;
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {  // eight columns
        if (j % 4 == 0 && 8 * j >= work.rows) break;
        const auto two = *reinterpret_cast<const int4*>(&shared[8 * j + t]);
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const float weight = __int_as_float(next == 0 ? two.y : two.w);
          float* const y     = epilogue.y + (next == 0 ? two.x : two.z) * epilogue.hidden + rows.p[0];
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            const auto& of_row = bias[r / 2];
            const float value  = epilogue.value(d[r / 2][4 * j + r % 2 * 2 + next],
                                               r % 2 == 0 ? of_row.low : of_row.high, weight);
            ptx::st_global_if(8 * j + t + next < work.rows && stores[r], y + r / 2 * kStep + r % 2 * 8,
                              value);
          }
        }
      }
    }
  };

  template <class S>
  __device__ OfTile of(const WorkTile& work, Shared& shared) const {
    WeightedEpilogues::Shared none;
    const WeightedEpilogue epilogue = all.of<S>(work, none).epilogue;
    const GroupRows rows(work);
    const int expert_row = all.sorted_ids[work.row + min(static_cast<int>(threadIdx.x % 128), work.rows - 1)];
    return {epilogue,
            {epilogue.read(rows.p[0]), epilogue.read(rows.p[1])},
            rows,
            {expert_row, all.weights[expert_row]},
            shared.rows[threadIdx.x / 128]};
  }
};

template <class S, class Scheduler, class Epilogues>
void launch_experts(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                    const Epilogues& epilogues, StreamRef stream) {
  launch_gemm<S>(x, Mxfp4Tiles{w.tiles, w.scales}, Scheduler(rows, w), epilogues,
                 S::kCtasPerSm * multiprocessors(), 1, stream);
}

}  // namespace fathom::kernels::wgmma_gemm
