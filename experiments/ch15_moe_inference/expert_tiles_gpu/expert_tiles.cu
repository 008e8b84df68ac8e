// A layer of experts as a grouped GEMM                           T tokens, 4 of 32 experts each, MXFP4
//
// bytes   layer 1: 282 MB of weights at width 2880, layer 2: 141 MB; x and the result 11 to 17 KB a row
// flops   4 width^2 or 2 width^2 a row
// limit   bf16 peak of the tensor cores
// idea    the engine's kernel (kernels/moe/experts_grouped_gemm.cuh) with work tiles of up to 128 rows and
// 256
//         outputs, in steps
#include "expert_tiles.h"
#include "kernels/moe/experts_grouped_gemm.cuh"

namespace fathom::lab::expert_tiles_gpu {
namespace {

using namespace kernels::wgmma_gemm;

template <class S, class Scheduler, class UpEpilogues, class DownEpilogues>
void launch(const ExpertTiles& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows rows{.offsets = p.first, .sorted_ids = p.slot};
  const kernels::PackedExperts& w = p.w.packed;
  if (p.layer == 1)
    return launch_experts<S, Scheduler>(p.x, rows, w,
                                        UpEpilogues{{.epilogue = {.a            = p.a.data(),
                                                                  .units        = p.a.stride(0),
                                                                  .bias         = w.bias,
                                                                  .output_scale = w.output_scale,
                                                                  .limit        = mxfp4::kLimit,
                                                                  .alpha        = mxfp4::kAlpha},
                                                     .rows     = w.rows}},
                                        stream);
  launch_experts<S, Scheduler>(p.x, rows, w,
                               DownEpilogues{{.epilogue   = {.y            = p.slots.data(),
                                                             .hidden       = p.slots.extent(1),
                                                             .bias         = w.bias,
                                                             .output_scale = w.output_scale},
                                              .rows       = w.rows,
                                              .sorted_ids = p.slot.data(),
                                              .weights    = p.weights.data()}},
                               stream);
}

// An epilogue of single sums, in the braces of one of whole tiles.
struct UpSums : SwigluEpilogues {};
struct DownSums : WeightedEpilogues {};

template <class S, template <class> class Scheduler>
void launch_tiles(const ExpertTiles& p, StreamRef stream) {
  launch<S, Scheduler<S>, SwigluEpiloguesOfTiles, WeightedEpiloguesOfTiles>(p, stream);
}

// Stages of two tiles of 64 columns of W.
template <int kColumnStep = 128>
using TwoTileStages = TileShape<128, 2, 2, 2, 4, 1, kColumnStep>;

}  // namespace

void equal_tiles(const ExpertTiles& p, StreamRef stream) {
  using S = TwoTileStages<>;
  launch<S, ExpertTileScheduler<S>, UpSums, DownSums>(p, stream);
}

void operands_early(const ExpertTiles& p, StreamRef stream) {
  launch_tiles<TwoTileStages<>, ExpertTileScheduler>(p, stream);
}

void balanced(const ExpertTiles& p, StreamRef stream) {
  launch_tiles<TwoTileStages<>, BalancedExpertTileScheduler>(p, stream);
}

void narrow_tiles(const ExpertTiles& p, StreamRef stream) {
  launch_tiles<TwoTileStages<32>, BalancedExpertTileScheduler>(p, stream);
}

void one_tile_stages(const ExpertTiles& p, StreamRef stream) {
  launch_tiles<TileShape<128, 2, 2, 1, 9, 1>, BalancedExpertTileScheduler>(p, stream);
}

}  // namespace fathom::lab::expert_tiles_gpu
