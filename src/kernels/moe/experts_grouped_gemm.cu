// The shapes of work tiles for the experts' numbers of rows.
#include "core/expect.h"
#include "kernels/moe/experts_grouped_gemm.cuh"
#include "kernels/moe/experts_grouped_gemm.h"

namespace fathom::kernels {
namespace {

using namespace wgmma_gemm;

template <class S, class Epilogues>
void take_turns(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                const Epilogues& epilogues, StreamRef stream) {
  launch_experts<S, ExpertTileScheduler<S>>(x, rows, w, epilogues, stream);
}

// A work tile has room for twice the mean number of rows of an expert, so that few experts need two.
template <class TileEpilogues, class Epilogues>
void launch_for_rows(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                     const Epilogues& epilogues, StreamRef stream) {
  FATHOM_EXPECT(rows.offsets.extent(0) == w.experts + 1 && w.experts <= kMaxExperts &&
                    rows.sorted_ids.extent(0) == x.extent(0) && x.extent(1) <= w.depth,
                "experts_grouped_gemm: offsets is [E + 1], E up to 128, one sorted id for each row of at "
                "most w.depth columns");
  if (x.extent(0) == 0) return;
  const int64_t twice = 2 * x.extent(0);
  if (twice <= 16 * w.experts) return take_turns<TileShape<16, 2, 1, 3, 5, 2>>(x, rows, w, epilogues, stream);
  if (twice <= 32 * w.experts) return take_turns<TileShape<32, 4, 1, 4, 4, 1>>(x, rows, w, epilogues, stream);
  if (twice <= 64 * w.experts) return take_turns<TileShape<64, 2, 2, 3, 4, 1>>(x, rows, w, epilogues, stream);
  // What its parts gain: experiments/ch15_moe_inference/expert_tiles_gpu.
  using ManyRows = TileShape<128, 2, 2, 2, 4, 1>;
  launch_experts<ManyRows, BalancedExpertTileScheduler<ManyRows>>(x, rows, w, TileEpilogues{epilogues},
                                                                  stream);
}

}  // namespace

void experts_up_grouped_gemm(View<const bf16, 2> sorted, const ExpertRows& rows, const PackedExperts& w1,
                             float limit, float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == sorted.extent(0) && a.extent(1) >= w1.rows / 2 && a.stride(1) == 1,
                "experts_up_grouped_gemm: a is [T top_k, units]");
  launch_for_rows<SwigluEpiloguesOfTiles>(sorted, rows, w1,
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
  launch_for_rows<WeightedEpiloguesOfTiles>(a, rows, w2,
                                            WeightedEpilogues{.epilogue   = {.y      = expert_outputs.data(),
                                                                             .hidden = expert_outputs.extent(1),
                                                                             .bias   = w2.bias,
                                                                             .output_scale = w2.output_scale},
                                                              .rows       = w2.rows,
                                                              .sorted_ids = rows.sorted_ids.data(),
                                                              .weights    = weights.data()},
                                            stream);
}

}  // namespace fathom::kernels
