// A grouped GEMM leaves the tensor cores idle, or lets them multiply nothing, where a work tile ends: its
// rows are not full, and its results are stored. What does each cure gain?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"
#include "experiments/ch15_moe_inference/mxfp4_problem.h"
#include "expert_tiles.h"

namespace fathom::lab::expert_tiles_gpu {
namespace {

using mxfp4::kTopK;

// Popularity falls as 1 / sqrt(rank + 8): of 32 experts the first has twice the mean. Which expert has which
// rank is drawn.
Generate uneven_offsets(int64_t rows) {
  return generate<int32_t>([rows](int32_t* first, int64_t n, uint64_t seed) {
    std::vector<int64_t> rank(static_cast<size_t>(n - 1));
    fill_permutation(rank.data(), n - 1, seed, n - 1);
    std::vector<double> before = {0};  // popularity of the experts before this one
    for (const int64_t r : rank) before.push_back(before.back() + 1 / std::sqrt(static_cast<double>(r + 8)));
    for (size_t e = 0; e < before.size(); ++e)
      first[e] = static_cast<int32_t>(std::llround(before[e] / before.back() * static_cast<double>(rows)));
  });
}

void any_order(int32_t* to, int64_t n, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  fill_permutation(order.data(), n, seed, n);
  std::transform(order.begin(), order.end(), to, [](int64_t s) { return static_cast<int32_t>(s); });
}

}  // namespace

ExpertTiles::ExpertTiles(const Point& at, Arena& arena)
    : ExpertTiles(at["layer"], at["tokens"] * kTopK, at["width"], arena) {}

ExpertTiles::ExpertTiles(int64_t layer_, int64_t rows, int64_t width, Arena& arena)
    : layer(layer_),
      x(arena.input<bf16>({rows, width}, Normal{})),
      first(arena.input<int32_t>({kExperts + 1}, uneven_offsets(rows))),
      slot(arena.input<int32_t>({rows}, generate<int32_t>(any_order))),
      weights(arena.input<float>({rows}, Uniform{0.1, 0.4})),
      bias(arena.input<float>({kExperts, layer == 1 ? 2 * width : width}, Normal{})),
      w(mxfp4::input_matrices({kExperts, bias.extent(1), width},
                              layer == 1 ? kernels::RowOrder::gate_pairs : kernels::RowOrder::plain, bias,
                              arena)),
      a(arena.output<bf16>({layer == 1 ? rows : 0, width})),
      slots(arena.output<float>({layer == 1 ? 0 : rows, width})) {}

Cost ExpertTiles::cost() const {
  const int64_t outputs = bias.extent(1), width = x.extent(1);
  return {.read = kExperts * outputs * width * 17 / 32 + bias.bytes() + x.bytes() + first.bytes() +
                  (layer == 1 ? 0 : slot.bytes() + weights.bytes()),
          .written   = a.bytes() + slots.bytes(),
          .flops     = 2.0 * static_cast<double>(x.size()) * static_cast<double>(outputs),
          .flop_type = DType::bf16};
}

void ExpertTiles::check(Checker& checker) const {
  std::vector<int64_t> row_of_slot(static_cast<size_t>(slot.size()));
  for (int64_t i = 0; i < slot.size(); ++i) row_of_slot[static_cast<size_t>(slot(i))] = i;
  const auto expert = [&](int64_t i) {
    return std::upper_bound(first.data(), first.data() + first.size(), i) - first.data() - 1;
  };
  checker.values_in_parallel("a", a,
                             [&](int64_t i, int64_t u) { return mxfp4::gated(w, expert(i), u, &x(i, 0)); });
  checker.values_in_parallel("slots", slots, [&](int64_t s, int64_t h) {
    const int64_t i = row_of_slot[static_cast<size_t>(s)];
    return mxfp4::weighted(w, expert(i), h, &x(i, 0), weights(s));
  });
}

namespace {

const std::vector<std::string> kTechniques = {"grouped_experts", "kernel_fusion",       "tensor_cores",
                                              "tma_pipeline",    "warp_specialization", "persistent_kernel"};

const Experiment<ExpertTiles> expert_tiles{
    .question =
        "Where a work tile of a grouped GEMM ends, tensor cores wait: how much do operands that are there, "
        "equal shares and tiles as narrow as their rows gain?",
    .limit    = Limit::tensor_flops,
    .axes     = {{"layer", {1, 2}}, {"tokens", {8192, 2048}}, {"width", {2880}}},
    .check_at = {{"layer", {1, 2}}, {"tokens", {0, 1, 67, 300, 1000}}, {"width", {64, 192, 640}}},
    .variants = {{.id         = "equal_tiles",
                  .launch     = on_gpu(equal_tiles),
                  .techniques = kTechniques,
                  .idea       = "128 columns for any number of rows; both warpgroups store at the same time",
                  .prediction = predict::share(0.7),
                  .needs      = {machine::Feature::wgmma}},
                 {.id         = "operands_early",
                  .launch     = on_gpu(operands_early),
                  .techniques = kTechniques,
                  .idea       = "bias, row numbers and weights are loaded before the main loop",
                  .prediction = predict::ratio(1.05),
                  .needs      = {machine::Feature::wgmma}},
                 {.id         = "balanced",
                  .launch     = on_gpu(balanced),
                  .techniques = kTechniques,
                  .idea       = "and each CTA has as many whole tiles, and as many others, as any other",
                  .prediction = predict::nothing(),
                  .kind       = Kind::engine,
                  .op         = "kernels/moe/experts_grouped_gemm.cu",
                  .needs      = {machine::Feature::wgmma}},
                 {.id         = "narrow_tiles",
                  .launch     = on_gpu(narrow_tiles),
                  .techniques = kTechniques,
                  .idea       = "and an expert's last rows take 32, 64 or 96 columns",
                  .prediction = predict::ratio(1.1),
                  .needs      = {machine::Feature::wgmma}},
                 {.id         = "one_tile_stages",
                  .launch     = on_gpu(one_tile_stages),
                  .techniques = kTechniques,
                  .idea       = "as balanced, with nine stages of 64 columns of W instead of four of 128",
                  .prediction = predict::nothing(),
                  .needs      = {machine::Feature::wgmma}}},
    .backend  = Backend::cuda,
    .catalog  = {"moe-011", "occupancy-009"},
    .group    = "grouped_experts",
};
FATHOM_REGISTER(expert_tiles);

}  // namespace
}  // namespace fathom::lab::expert_tiles_gpu
