// A decode step has a few tokens, and reads the weights of their experts at 4.25 bits. A GPU's memory
// delivers them faster than its CUDA cores unpack them. What does it take to keep up?
#include "lab/experiment.h"

#include <cmath>

#include "core/rng.h"
#include "experiments/ch15_moe_inference/mxfp4_problem.h"
#include "expert_gemv.h"

namespace fathom::lab::expert_gemv_gpu {
namespace {

// How many of gpt-oss-20b's 32 experts are active on average, if tokens choose 4 of them at random.
int64_t active_experts(int64_t tokens) {
  return std::lround(32 * (1 - std::pow(1 - kTopK / 32.0, static_cast<double>(tokens))));
}

// Each of the `active` experts has a slot, in random order; further slots repeat that order. So the experts
// of a token, in consecutive slots, are all different.
Generate choose(int64_t active) {
  return generate<int32_t>([active](int32_t* to, int64_t slots, uint64_t seed) {
    std::vector<int32_t> order(static_cast<size_t>(active));
    fill_permutation(order.data(), active, seed, active);
    for (int64_t s = 0; s < slots; ++s) to[s] = order[static_cast<size_t>(s % active)];
  });
}

}  // namespace

ExpertGemv::ExpertGemv(const Point& at, Arena& arena)
    : ExpertGemv(at["tokens"], at["width"], active_experts(at["tokens"]), arena) {}

ExpertGemv::ExpertGemv(int64_t tokens, int64_t width, int64_t active, Arena& arena)
    : x(arena.input<bf16>({tokens, width}, Normal{})),
      experts(arena.input<int32_t>({tokens, kTopK}, choose(active))),
      weights(arena.input<float>({tokens, kTopK}, Uniform{0.1, 0.4})),
      up_bias(arena.input<float>({active, 2 * width}, Normal{})),
      down_bias(arena.input<float>({active, width}, Normal{})),
      up(mxfp4::input_matrices({active, 2 * width, width}, kernels::RowOrder::gate_pairs, up_bias, arena)),
      down(mxfp4::input_matrices({active, width, width}, kernels::RowOrder::plain, down_bias, arena)),
      a(arena.output<bf16>({tokens * kTopK, width})),
      slots(arena.output<float>({tokens * kTopK, width})) {}

Cost ExpertGemv::cost() const {
  const int64_t of_one = 3 * x.extent(1) * x.extent(1);  // numbers of an expert
  return {.read      = up.packed.experts * of_one * 17 / 32 + up_bias.bytes() + down_bias.bytes() + x.bytes(),
          .written   = a.bytes() + slots.bytes(),
          .flops     = 2.0 * static_cast<double>(experts.size() * of_one),
          .flop_type = DType::bf16};
}

void ExpertGemv::check(Checker& checker) const {
  const auto expert = [&](int64_t s) { return experts(s / kTopK, s % kTopK); };
  checker.values_in_parallel(
      "a", a, [&](int64_t s, int64_t u) { return mxfp4::gated(up, expert(s), u, &x(s / kTopK, 0)); });
  checker.values_in_parallel("slots", slots, [&](int64_t s, int64_t h) {
    return mxfp4::weighted(down, expert(s), h, &a(s, 0), weights(s / kTopK, s % kTopK));
  });
}

namespace {

const Experiment<ExpertGemv> expert_gemv{
    .question = "What does it take to multiply 4-bit weights as fast as a GPU's memory delivers them?",
    .limit    = Limit::memory,
    // 1: 53 MB of weights, 4 experts. 8: 278 MB, 21 experts with 32 slots.
    .axes     = {{"tokens", {1, 2, 4, 8}}, {"width", {2880}}},
    .check_at = {{"tokens", {0, 1, 3, 8}}, {"width", {64, 192, 1088}}},
    .variants =
        {{.id         = "plain",
          .launch     = on_gpu(plain),
          .techniques = {},
          .idea       = "a warp for two rows of packed weights, unpacked in registers",
          .prediction = predict::share(0.28)},
         {.id         = "fused",
          .launch     = on_gpu(fused),
          .techniques = {"register_blocking", "latency_hiding"},
          .idea       = "a warp walks over many rows, six loads ahead; its part of x stays in registers",
          .prediction = predict::ratio_at_least(1.25)},
         {.id         = "fragments",
          .launch     = on_gpu(fragments),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "inline_ptx"},
          .idea       = "weights packed as mma fragments; an expert's slots are the 8 columns",
          .prediction = predict::ratio_at_least(1.45)},
         {.id         = "split_k",
          .launch     = on_gpu(split_k),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "inline_ptx", "latency_hiding"},
          .idea       = "9 warps share a strip's 45 tiles: all its weights are on their way at once",
          .prediction = predict::ratio_at_least(1.6)},
         {.id         = "persistent",
          .launch     = on_gpu(persistent),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "inline_ptx", "latency_hiding",
                         "persistent_kernel", "software_prefetch"},
          .idea       = "CTAs with equal runs of strips; the next strip loads while this one multiplies",
          .prediction = predict::ratio_at_least(1.75)},
         {.id         = "epilogue_warp",
          .launch     = on_gpu(epilogue_warp),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "inline_ptx", "latency_hiding",
                         "persistent_kernel", "software_prefetch", "warp_specialization",
                         "completion_tokens"},
          .idea       = "one more warp adds the parts and stores; those that multiply wait for nobody",
          .prediction = predict::ratio_at_least(1.8),
          .needs      = {machine::Feature::tma}},
         {.id         = "tensor_cores",
          .launch     = on_gpu(tensor_cores),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "warp_specialization",
                         "persistent_kernel", "programmatic_dependent_launch"},
          .idea = "the engine's op: as epilogue_warp, with programmatic dependent launch and larger strips",
          .prediction = predict::share_at_least(0.55),
          .kind       = Kind::engine,
          .op         = "kernels/moe/experts_gemv.cu",
          .needs      = {machine::Feature::clusters}},
         {.id         = "one_launch",
          .launch     = on_gpu(one_launch),
          .techniques = {"kernel_fusion", "layout_change", "tensor_cores", "warp_specialization",
                         "persistent_kernel", "cooperative_groups"},
          .idea       = "the engine's op for both layers: a grid barrier under which memory works",
          .prediction = predict::share_at_least(0.68),
          .kind       = Kind::engine,
          .op         = "kernels/moe/experts_gemv_fused.cu",
          .needs      = {machine::Feature::clusters}}},
    .backend = Backend::cuda,
    .catalog = {"quant-013"},
    .group   = "expert_gemv",
};
FATHOM_REGISTER(expert_gemv);

}  // namespace
}  // namespace fathom::lab::expert_gemv_gpu
