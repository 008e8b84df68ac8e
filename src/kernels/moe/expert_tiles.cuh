// The work tiles of a grouped GEMM (kernels/moe/experts_grouped_gemm.cuh), and which CTA computes which. They
// follow from the experts' numbers of rows, which only the device knows. Tiles go expert by expert. Within an
// expert, all its rows come for one part of its matrix, so that this part is read once from memory.
#pragma once

#include <cstdint>

#include "cuda/warp_reduce.cuh"
#include "kernels/gemm/wgmma_mainloop.cuh"
#include "kernels/moe/expert_rows.h"

namespace fathom::kernels::wgmma_gemm {

// All tiles count as equal, and CTAs take turns.
template <class S>
class ExpertTileScheduler {
 public:
  static constexpr bool kTilesKnownOnHost = false, kMaySplitK = false;
  struct Shared {
    int tiles_before[kMaxExperts + 1];
  };

  ExpertTileScheduler(const ExpertRows& rows, const PackedExperts& w)
      : offsets_(rows.offsets.data()),
        experts_(static_cast<int>(w.experts)),
        groups_(static_cast<int>(w.rows / kTile)),
        depth_(static_cast<int>(w.depth / kTile)) {}

  __device__ void begin(Shared& shared) {
    tiles_before_ = shared.tiles_before;
    if (threadIdx.x >= 32) return;
    constexpr int kExpertsPerLane = static_cast<int>(kMaxExperts) / 32;
    const int lane = threadIdx.x, tiles_across = (groups_ + S::kGroups - 1) / S::kGroups;
    int tiles[kExpertsPerLane], sum            = 0;
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int e = lane * kExpertsPerLane + i;
      tiles[i]    = e < experts_ ? tiles_across * column_tiles(e) : 0;
      sum += tiles[i];
    }
    int before = warp_inclusive_sum(sum, lane) - sum;
    for (int i = 0; i < kExpertsPerLane; ++i) {
      shared.tiles_before[lane * kExpertsPerLane + i] = before;
      before += tiles[i];
    }
    if (lane == 31) shared.tiles_before[kMaxExperts] = before;
  }

  __device__ int first() const { return blockIdx.x; }
  __device__ int step() const { return gridDim.x; }
  __device__ int count() const { return tiles_before_[kMaxExperts]; }

  // By whole warps.
  __device__ WorkTile tile(int i) const {
    int e = 0;  // the number of experts whose tiles are all before tile i
    for (int base = 0; base < experts_; base += 32)
      e += __popc(__ballot_sync(~0u, tiles_before_[base + threadIdx.x % 32 + 1] <= i));
    const int local = i - tiles_before_[e], tiles_across = column_tiles(e);
    const int group = local / tiles_across * S::kGroups,
              row   = offsets_[e] + local % tiles_across * S::kColumns;
    return {.first_weight_tile = (int64_t{e} * groups_ + group) * depth_,
            .depth             = depth_,
            .begin             = 0,
            .end               = depth_,
            .group             = group,
            .groups            = min(S::kGroups, groups_ - group),
            .row               = row,
            .rows              = min(S::kColumns, offsets_[e + 1] - row),
            .expert            = e};
  }

 private:
  __device__ int column_tiles(int e) const {
    return (offsets_[e + 1] - offsets_[e] + S::kColumns - 1) / S::kColumns;
  }

  const int32_t* offsets_;
  int experts_, groups_, depth_;
  const int* tiles_before_ = nullptr;
};

// Tiles are unequal: the last rows of an expert need fewer columns (TileShape::kColumnStep), and the last
// groups of a matrix may be fewer than those of a tile. An expert has up to four parts, each with equal
// tiles:
//
//   0  whole tiles of rows, whole tiles of groups      1  whole tiles of rows, the last groups
//   2  the last rows, whole tiles of groups            3  the last rows, the last groups
//
// CTAs take turns within each class of equal tiles of all experts, so that each gets as many of a class as
// any other, give or take one. They compute them expert by expert, as the weights and rows of an expert are
// in the L2 cache at the same time.
template <class S>
class BalancedExpertTileScheduler {
 public:
  static constexpr bool kTilesKnownOnHost = false, kMaySplitK = false;
  struct Shared {
    int first[4 * kMaxExperts];        // tiles of equal or earlier classes before a part
    int mine_before[kMaxExperts + 1];  // tiles of this CTA before an expert
    int offsets[kMaxExperts + 1];      // ExpertRows::offsets
  };

  BalancedExpertTileScheduler(const ExpertRows& rows, const PackedExperts& w)
      : offsets_(rows.offsets.data()),
        experts_(static_cast<int>(w.experts)),
        groups_(static_cast<int>(w.rows / kTile)),
        depth_(static_cast<int>(w.depth / kTile)) {}

  __device__ void begin(Shared& shared) {
    shared_ = &shared;
    if (threadIdx.x >= 32) return;
    constexpr int kExpertsPerLane = static_cast<int>(kMaxExperts) / 32;
    const int lane                = threadIdx.x;
    int rows[kExpertsPerLane], mine[kExpertsPerLane] = {};
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int e = lane * kExpertsPerLane + i;
      rows[i]     = e < experts_ ? offsets_[e + 1] - offsets_[e] : 0;
      if (e < experts_) shared.offsets[e + 1] = offsets_[e + 1];
    }
    if (lane == 0) shared.offsets[0] = offsets_[0];
    int numbered = 0;  // tiles of earlier classes
    for (int last_groups = 0; last_groups < 2; ++last_groups)
      for (int narrower = 0; narrower < kWidths; ++narrower) {
        int whole[kExpertsPerLane], last[kExpertsPerLane], sum = 0;  // tiles of this class
#pragma unroll
        for (int i = 0; i < kExpertsPerLane; ++i) {
          whole[i] = narrower == 0 ? tiles(rows[i], last_groups) : 0;
          last[i]  = narrower == width(rows[i]) ? tiles(rows[i], 2 + last_groups) : 0;
          sum += whole[i] + last[i];
        }
        int before = numbered + warp_inclusive_sum(sum, lane) - sum;
#pragma unroll
        for (int i = 0; i < kExpertsPerLane; ++i) {
          int* const first = shared.first + 4 * (lane * kExpertsPerLane + i) + last_groups;
          mine[i] += turns(before + whole[i] + last[i]) - turns(before);
          if (narrower == 0) first[0] = before;
          before += whole[i];
          if (last[i] > 0) first[2] = before;
          before += last[i];
        }
        numbered = __shfl_sync(~0u, before, 31);
      }
    int sum = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) sum += mine[i];
    int before = warp_inclusive_sum(sum, lane) - sum;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      shared.mine_before[lane * kExpertsPerLane + i] = before;
      before += mine[i];
    }
    if (lane == 31) shared.mine_before[kMaxExperts] = before;
  }

  // Of this CTA's tiles.
  __device__ int first() const { return 0; }
  __device__ int step() const { return 1; }
  __device__ int count() const { return shared_->mine_before[kMaxExperts]; }

  // By whole warps.
  __device__ WorkTile tile(int i) const {
    const int lane = threadIdx.x % 32;
    int e          = 0;  // the number of experts whose tiles are all before tile i
    for (int base = 0; base < experts_; base += 32)
      e += __popc(__ballot_sync(~0u, shared_->mine_before[base + lane + 1] <= i));
    const int begin = shared_->offsets[e], rows = shared_->offsets[e + 1] - begin;
    // Each lane has a part of the expert.
    const int of_part = tiles(rows, lane % 4), first = of_part > 0 ? shared_->first[4 * e + lane % 4] : 0;
    const int turn = turns(first), mine = turns(first + of_part) - turn;
    int up_to = mine;  // this CTA's tiles of this part and the parts before
    for (int distance = 1; distance < 4; distance *= 2) {
      const int of_lower = __shfl_up_sync(~0u, up_to, distance, 4);
      if (lane % 4 >= distance) up_to += of_lower;
    }
    i -= shared_->mine_before[e];
    const int part  = __popc(__ballot_sync(~0u, up_to <= i) & 15);
    const int local = (__shfl_sync(~0u, turn - up_to + mine, part) + i) * static_cast<int>(gridDim.x) +
                      static_cast<int>(blockIdx.x) - __shfl_sync(~0u, first, part);

    const int whole_rows = rows / S::kColumns, whole_groups = groups_ / S::kGroups;
    const int down  = part < 2 ? whole_rows : 1;  // tiles that have the same groups
    const int row   = part < 2 ? local % down * S::kColumns : whole_rows * S::kColumns;
    const int group = (part % 2 == 0 ? local / down : whole_groups) * S::kGroups;
    return {.first_weight_tile = (int64_t{e} * groups_ + group) * depth_,
            .depth             = depth_,
            .begin             = 0,
            .end               = depth_,
            .group             = group,
            .groups            = min(S::kGroups, groups_ - group),
            .row               = begin + row,
            .rows              = min(S::kColumns, rows - row),
            .expert            = e};
  }

 private:
  static constexpr int kWidths = S::kColumns / S::kColumnStep;

  // The tiles of a part of an expert.
  __device__ int tiles(int rows, int part) const {
    const int of_rows   = part < 2 ? rows / S::kColumns : rows % S::kColumns > 0;
    const int of_groups = part % 2 == 0 ? groups_ / S::kGroups : groups_ % S::kGroups > 0;
    return of_rows * of_groups;
  }
  // How much narrower than kColumns the tiles of the last rows are, in steps.
  __device__ static int width(int rows) {
    return (S::kColumns - rows % S::kColumns) / S::kColumnStep % kWidths;
  }
  // How many of the first n tiles are this CTA's.
  __device__ int turns(int n) const { return (n + gridDim.x - 1 - blockIdx.x) / gridDim.x; }

  const int32_t* offsets_;
  int experts_, groups_, depth_;
  const Shared* shared_ = nullptr;
};

}  // namespace fathom::kernels::wgmma_gemm
