// A prompt has thousands of tokens, each with its own experts. One expert's GEMM is too small to fill a GPU,
// and the next one waits for it. How much faster is one grouped GEMM over all experts?
#include "lab/experiment.h"

#include <algorithm>
#include <numeric>

#include "core/rng.h"
#include "experiments/ch15_moe_inference/mxfp4_problem.h"
#include "grouped_experts.h"

namespace fathom::lab::grouped_experts_gpu {
namespace {

// Routers favour some experts. The smaller of two draws makes low experts likelier than high ones, by up to
// 63 to 1. If the token already has that expert, it takes the next that it does not have.
void route(int32_t* to, int64_t slots, uint64_t seed) {
  std::vector<int32_t> other(static_cast<size_t>(slots));
  fill_integers(to, slots, seed, 0, kExperts);
  fill_integers(other.data(), slots, ~seed, 0, kExperts);
  for (int64_t s = 0; s < slots; ++s) {
    const int32_t* token = to + s / kTopK * kTopK;
    int32_t expert       = std::min(to[s], other[static_cast<size_t>(s)]);
    while (std::find(token, token + s % kTopK, expert) != token + s % kTopK)
      expert = (expert + 1) % static_cast<int32_t>(kExperts);
    to[s] = expert;
  }
}

}  // namespace

GroupedExperts::GroupedExperts(const Point& at, Arena& arena)
    : GroupedExperts(at["tokens"], at["width"], arena) {}

GroupedExperts::GroupedExperts(int64_t tokens, int64_t width, Arena& arena)
    : x(arena.input<bf16>({tokens, width}, Normal{})),
      experts(arena.input<int32_t>({tokens, kTopK}, generate<int32_t>(route))),
      weights(arena.input<float>({tokens, kTopK}, Uniform{0.1, 0.4})),
      up_bias(arena.input<float>({kExperts, 2 * width}, Normal{})),
      down_bias(arena.input<float>({kExperts, width}, Normal{})),
      up(mxfp4::input_matrices({kExperts, 2 * width, width}, kernels::RowOrder::gate_pairs, up_bias, arena)),
      down(mxfp4::input_matrices({kExperts, width, width}, kernels::RowOrder::plain, down_bias, arena)),
      a(arena.output<bf16>({tokens * kTopK, width})),
      slots(arena.output<float>({tokens * kTopK, width})),
      first(arena.workspace<int32_t>({kExperts + 1})),
      slot(arena.workspace<int32_t>({tokens * kTopK})),
      sorted(arena.workspace<bf16>({tokens * kTopK, width})),
      numbers(arena.workspace<bf16>({2 * width, width})),
      products(arena.workspace<float>({tokens, 2 * width})) {}

// Weights count in full: at the timed points nearly every expert has tokens.
Cost GroupedExperts::cost() const {
  const int64_t of_one = 3 * x.extent(1) * x.extent(1);  // numbers of an expert
  return {.read = kExperts * of_one * 17 / 32 + up_bias.bytes() + down_bias.bytes() + x.bytes() +
                  experts.bytes() + weights.bytes(),
          .written   = a.bytes() + slots.bytes(),
          .flops     = 2.0 * static_cast<double>(experts.size()) * static_cast<double>(of_one),
          .flop_type = DType::bf16};
}

void GroupedExperts::check(Checker& checker) const {
  const auto expert = [&](int64_t s) { return experts(s / kTopK, s % kTopK); };
  std::vector<int64_t> slot_of_row(static_cast<size_t>(experts.size())), row_of_slot(slot_of_row.size());
  std::iota(slot_of_row.begin(), slot_of_row.end(), int64_t{0});
  std::stable_sort(slot_of_row.begin(), slot_of_row.end(),
                   [&](int64_t s, int64_t r) { return expert(s) < expert(r); });
  for (size_t i = 0; i < slot_of_row.size(); ++i)
    row_of_slot[static_cast<size_t>(slot_of_row[i])] = static_cast<int64_t>(i);
  checker.values_in_parallel("a", a, [&](int64_t i, int64_t u) {
    const int64_t s = slot_of_row[static_cast<size_t>(i)];
    return mxfp4::gated(up, expert(s), u, &x(s / kTopK, 0));
  });
  checker.values_in_parallel("slots", slots, [&](int64_t s, int64_t h) {
    return mxfp4::weighted(down, expert(s), h, &a(row_of_slot[static_cast<size_t>(s)], 0),
                           weights(s / kTopK, s % kTopK));
  });
}

namespace {

const Experiment<GroupedExperts> grouped_experts{
    .question =
        "How much faster is one grouped GEMM over all experts than a GEMM for each, with 4-bit weights?",
    .limit = Limit::tensor_flops,
    // 256, 64 and 1024 rows for an expert on average.
    .axes     = {{"tokens", {2048, 512, 8192}}, {"width", {2880}}},
    .check_at = {{"tokens", {0, 1, 9, 67, 200, 300}}, {"width", {64, 192}}},
    .variants = {{.id         = "one_gemm_each",
                  .techniques = {},
                  .idea       = "for each expert: dequantize to bf16, cuBLAS, an epilogue kernel",
                  .prediction = predict::share(0.26),
                  .prepare    = prepared_on_gpu(one_gemm_each),
                  .syncs      = true},  // cuBLAS takes an expert's number of rows on the host
                 {.id         = "one_launch_each",
                  .launch     = on_gpu(one_launch_each),
                  .techniques = {"sparse_activation", "kernel_fusion", "tensor_cores", "tma_pipeline",
                                 "warp_specialization"},
                  .idea = "the engine's kernels, one expert at a time: dequantization and epilogue are fused",
                  .prediction = predict::ratio(0.8),
                  .needs      = {machine::Feature::wgmma}},
                 {.id         = "grouped",
                  .launch     = on_gpu(grouped),
                  .techniques = {"sparse_activation", "grouped_experts", "kernel_fusion", "tensor_cores",
                                 "tma_pipeline", "warp_specialization", "persistent_kernel",
                                 "programmatic_dependent_launch"},
                  .idea       = "the engine's ops: the tiles of all experts in one launch, over all SMs",
                  .prediction = predict::ratio_at_least(1.3),
                  .kind       = Kind::engine,
                  .op         = "kernels/moe/experts_grouped_gemm.cu",
                  .needs      = {machine::Feature::wgmma}}},
    .backend  = Backend::cuda,
    .catalog  = {"moe-003", "moe-011", "occupancy-009"},
    .group    = "grouped_experts",
};
FATHOM_REGISTER(grouped_experts);

}  // namespace
}  // namespace fathom::lab::grouped_experts_gpu
