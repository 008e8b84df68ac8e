// A decode step has a few tokens, and reads the weights of each one's experts at 4.25 bits. A GPU's memory
// gives them faster than its CUDA cores unpack them: what does it take to keep up?
#include "lab/experiment.h"

#include <cmath>

#include "core/rng.h"
#include "experiments/ch15_moe_inference/mxfp4_problem.h"
#include "expert_gemv.h"

namespace fathom::lab::expert_gemv_gpu {
namespace {

// As many of gpt-oss-20b's 32 experts as tokens that choose 4 of them at random touch on average.
int64_t touched_by(int64_t tokens) {
  return std::lround(32 * (1 - std::pow(1 - kTopK / 32.0, static_cast<double>(tokens))));
}

// All of `touched` have a slot, in random order, and slots beyond go round again: a token's, which follow
// each other, are all different.
Generate choose(int64_t touched) {
  return generate<int32_t>([touched](int32_t* to, int64_t slots, uint64_t seed) {
    std::vector<int32_t> order(static_cast<size_t>(touched));
    fill_permutation(order.data(), touched, seed, touched);
    for (int64_t s = 0; s < slots; ++s) to[s] = order[static_cast<size_t>(s % touched)];
  });
}

}  // namespace

ExpertGemv::ExpertGemv(const Point& at, Arena& arena)
    : ExpertGemv(at["tokens"], at["width"], touched_by(at["tokens"]), arena) {}

ExpertGemv::ExpertGemv(int64_t tokens, int64_t width, int64_t touched, Arena& arena)
    : x(arena.input<bf16>({tokens, width}, Normal{})),
      experts(arena.input<int32_t>({tokens, kTopK}, choose(touched))),
      weights(arena.input<float>({tokens, kTopK}, Uniform{0.1, 0.4})),
      up_bias(arena.input<float>({touched, 2 * width}, Normal{})),
      down_bias(arena.input<float>({touched, width}, Normal{})),
      up(mxfp4::input_matrices({touched, 2 * width, width}, kernels::RowOrder::gate_pairs, up_bias, arena)),
      down(mxfp4::input_matrices({touched, width, width}, kernels::RowOrder::plain, down_bias, arena)),
      a(arena.output<bf16>({tokens * kTopK, width})),
      slots(arena.output<float>({tokens * kTopK, width})),
      numbers(arena.workspace<bf16>({touched, 2 * width, width})) {}

Cost ExpertGemv::cost() const {
  const int64_t of_one = 3 * x.extent(1) * x.extent(1);  // numbers of an expert
  return {.read      = up.packed.experts * of_one * 17 / 32 + up_bias.bytes() + down_bias.bytes() + x.bytes(),
          .written   = a.bytes() + slots.bytes(),
          .flops     = 2.0 * static_cast<double>(experts.size() * of_one),
          .flop_type = DType::bf16};
}

void ExpertGemv::check(Checker& checker) const {
  const auto expert = [&](int64_t s) { return experts(s / kTopK, s % kTopK); };
  checker.values("a", a,
                 [&](int64_t s, int64_t u) { return mxfp4::gated(up, expert(s), u, &x(s / kTopK, 0)); });
  checker.values("slots", slots, [&](int64_t s, int64_t h) {
    return mxfp4::weighted(down, expert(s), h, &a(s, 0), weights(s / kTopK, s % kTopK));
  });
}

namespace {

const Experiment<ExpertGemv> expert_gemv{
    .question = "What does it take to multiply 4-bit weights as fast as a GPU's memory gives them?",
    .limit    = Limit::memory,
    // 1: 53 MB of weights, 4 experts. 8: 278 MB, 21 experts with 32 slots.
    .axes     = {{"tokens", {1, 2, 4, 8}}, {"width", {2880}}},
    .check_at = {{"tokens", {0, 1, 3, 8}}, {"width", {64, 192, 1088}}},
    .variants = {{.id         = "dequantized",
                  .launch     = on_gpu(dequantized),
                  .techniques = {},
                  .idea       = "weights become bf16 in memory, then warps multiply rows",
                  .prediction = predict::share(0.095)},
                 {.id         = "fused",
                  .launch     = on_gpu(fused),
                  .techniques = {"kernel_fusion", "vectorization", "register_blocking"},
                  .idea       = "warps unpack rows in registers, as the checkpoint has them",
                  .prediction = predict::ratio_at_least(4)},
                 {.id         = "tensor_cores",
                  .launch     = on_gpu(tensor_cores),
                  .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "warp_specialization",
                                 "persistent_kernel", "programmatic_dependent_launch"},
                  .idea       = "the engine's op: weights packed as fragments, 8 rows at the price of one",
                  .prediction = predict::share_at_least(0.55),
                  .needs      = {machine::Feature::clusters}}},
    .backend  = Backend::cuda,
    .catalog  = {"quant-013"},
};
FATHOM_REGISTER(expert_gemv);

}  // namespace
}  // namespace fathom::lab::expert_gemv_gpu
