// A grouped GEMM. Work tiles are (expert, groups of its matrix, rows of it), expert by expert. Within an
// expert, all its rows come for one part of its matrix, so that this part is read once from memory. One
// persistent CTA on each multiprocessor, or two, iterates over the tiles. Main loop, bytes and flops:
// kernels/gemm/wgmma_mainloop.cuh.
#include "core/expect.h"
#include "cuda/multiprocessors.h"
#include "cuda/warp_reduce.cuh"
#include "kernels/gemm/wgmma_mainloop.cuh"
#include "kernels/moe/experts_grouped_gemm.h"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"

namespace fathom::kernels {
namespace {

using namespace wgmma_gemm;

// The tiles follow from the experts' numbers of rows, which only the device knows.
template <class S>
class ExpertTileScheduler {
 public:
  static constexpr bool kTilesKnownOnHost = false;
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
  __device__ int split() const { return 0; }
  __device__ int splits() const { return 1; }

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

struct SwigluEpilogues {
  SwigluEpilogue epilogue;  // with the biases of all experts
  int64_t rows;

  __device__ SwigluEpilogue of(const WorkTile& tile) const {
    SwigluEpilogue of_expert = epilogue;
    of_expert.bias += tile.expert * rows;
    return of_expert;
  }
};

struct WeightedEpilogues {
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

  __device__ OfExpert of(const WorkTile& tile) const {
    OfExpert of_expert{epilogue, sorted_ids, weights};
    of_expert.epilogue.bias += tile.expert * rows;
    return of_expert;
  }
};

template <class S, class Epilogues>
void launch_experts(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                    const Epilogues& epilogues, StreamRef stream) {
  launch_gemm<S>(x, Mxfp4Tiles{w.tiles, w.scales}, ExpertTileScheduler<S>(rows, w), epilogues,
                 S::kCtasPerSm * multiprocessors(), 1, stream);
}

// A work tile has room for twice the mean number of rows of an expert, so that few experts need two.
template <class Epilogues>
void launch_for_rows(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                     const Epilogues& epilogues, StreamRef stream) {
  FATHOM_EXPECT(rows.offsets.extent(0) == w.experts + 1 && w.experts <= kMaxExperts &&
                    rows.sorted_ids.extent(0) == x.extent(0) && x.extent(1) <= w.depth,
                "experts_grouped_gemm: offsets is [E + 1], E up to 128, one sorted id for each row of at "
                "most w.depth column_tiles");
  if (x.extent(0) == 0) return;
  const int64_t twice = 2 * x.extent(0);
  if (twice <= 16 * w.experts)
    return launch_experts<TileShape<16, 2, 1, 3, 5, 2>>(x, rows, w, epilogues, stream);
  if (twice <= 32 * w.experts)
    return launch_experts<TileShape<32, 4, 1, 4, 4, 1>>(x, rows, w, epilogues, stream);
  if (twice <= 64 * w.experts)
    return launch_experts<TileShape<64, 2, 2, 3, 4, 1>>(x, rows, w, epilogues, stream);
  launch_experts<TileShape<128, 2, 2, 2, 4, 1>>(x, rows, w, epilogues, stream);
}

}  // namespace

void experts_up_grouped_gemm(View<const bf16, 2> sorted, const ExpertRows& rows, const PackedExperts& w1,
                             float limit, float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == sorted.extent(0) && a.extent(1) >= w1.rows / 2 && a.stride(1) == 1,
                "experts_up_grouped_gemm: a is [T top_k, units]");
  launch_for_rows(sorted, rows, w1,
                  SwigluEpilogues{.epilogue = {.a            = a.data(),
                                               .units        = a.stride(0),
                                               .bias         = w1.bias,
                                               .output_scale = w1.output_scale,
                                               .limit        = limit,
                                               .alpha        = alpha},
                                  .rows     = w1.rows},
                  stream);
}

void experts_down_grouped_gemm(View<const bf16, 2> a, const ExpertRows& rows, View<const float, 2> weights,
                               const PackedExperts& w2, View<float, 2> expert_outputs, StreamRef stream) {
  FATHOM_EXPECT(expert_outputs.extent(0) == a.extent(0) && weights.size() == a.extent(0) &&
                    weights.contiguous() && expert_outputs.contiguous() &&
                    expert_outputs.extent(1) <= w2.rows,
                "experts_down_grouped_gemm: expert_outputs is [T top_k, H], weights [T, top_k], contiguous");
  launch_for_rows(a, rows, w2,
                  WeightedEpilogues{.epilogue   = {.y            = expert_outputs.data(),
                                                   .hidden       = expert_outputs.extent(1),
                                                   .bias         = w2.bias,
                                                   .output_scale = w2.output_scale},
                                    .rows       = w2.rows,
                                    .sorted_ids = rows.sorted_ids.data(),
                                    .weights    = weights.data()},
                  stream);
}

}  // namespace fathom::kernels
