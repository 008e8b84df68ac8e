// A step of a serving engine has a prompt beside decoding rows. Attention over the prompt keeps the tensor
// cores busy, decoding waits for memory. What does one launch gain in which each multiprocessor has both?
#include "lab/experiment.h"

#include <algorithm>
#include <numeric>

#include "core/rng.h"
#include "experiments/paged_attention_problem.h"
#include "pod.h"

namespace fathom::lab::pod_attention {

using paged_attention::pages_for;

Pod::Pod(const Point& at, Arena& arena)
    : DecodeRows(at, arena),
      tokens(at["tokens"]),
      prompt_q(arena.input<bf16>({tokens, kHeads, kHeadDim}, Normal{})),
      prompt_pages(arena.input<int32_t>(
          {1, pages_for(tokens)},
          generate<int32_t>([first = pages.size()](int32_t* to, int64_t n, uint64_t seed) {
            fill_permutation(to, n, seed, n);
            for (int64_t i = 0; i < n; ++i) to[i] += static_cast<int32_t>(first);
          }))),
      tiles(arena.input<bf16>({pages.size() + prompt_pages.size(), kKvHeads, 2, kPage, kHeadDim}, Normal{})),
      prompt_out(arena.output<bf16>({tokens, kHeads, kHeadDim})),
      tickets(arena.workspace<int32_t>({2 + kMultiprocessors})),
      prompt_tiles(arena.input<int32_t>(
          {(tokens + 63) / 64, 3}, generate<int32_t>([rows = tokens](int32_t* to, int64_t n, uint64_t) {
            for (int64_t i = 0; i < n / 3; ++i, to += 3) {
              to[0] = static_cast<int32_t>(64 * i);
              to[1] = static_cast<int32_t>(std::min<int64_t>(64, rows - 64 * i));
              to[2] = 0;
            }
          }))),
      prompt_positions(arena.input<int32_t>(
          {tokens}, generate<int32_t>([](int32_t* to, int64_t n, uint64_t) { std::iota(to, to + n, 0); }))) {}

Cost Pod::cost() const {
  Cost cost = cost_of_reading(4 * kKvHeads * kHeadDim);
  cost.read += prompt_q.bytes() + tokens * 4 * kKvHeads * kHeadDim;
  cost.written += prompt_out.bytes();
  cost.flops += 2.0 * static_cast<double>(tokens * (tokens + 1)) * kHeads * kHeadDim;
  cost.flop_type = DType::bf16;
  return cost;
}

void Pod::check(Checker& checker) const {
  check_over(kv(), checker);
  paged_attention::check_rows(checker, prompt_out, [&](int64_t t, int64_t h) {
    return paged_attention::RowReference(&prompt_q(t, h, 0), {kv(), prompt_pages.data(), h / kGroup}, kScale,
                                         sinks(h), 0, t);
  });
}

namespace {

const Experiment<Pod> pod{
    .question =
        "When a step has a prompt beside decoding rows, what does its attention gain if each multiprocessor "
        "computes both at the same time?",
    .limit = Limit::memory,
    // 64 sequences of 4096 positions are 537 MB; a prompt of 2048 tokens is 34 GFLOP, one of 1024 is 9.
    .axes = {{"tokens", {2048, 1024}}, {"sequences", {64}}, {"context", {4096}}, {"window", {0}}},
    // Sizes around tiles (32), pages (64) and units (16 tokens), more tiles than stages (8), and either kind
    // alone.
    .check_at = {{"tokens", {0, 1, 17, 300}}, {"sequences", {0, 3}}, {"context", {0, 65, 300}}},
    .variants =
        {
            {.id         = "one_after_another",
             .launch     = on_gpu(one_after_another),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline"},
             .idea       = "a launch for the prompt, then one for the decoding rows",
             .prediction = predict::share(0.4),
             .needs      = {machine::Feature::tma}},
            {.id         = "interleaved",
             .launch     = on_gpu(interleaved),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline"},
             .idea       = "one launch; the kinds alternate in the order of CTAs",
             .prediction = predict::ratio(1.3),
             .needs      = {machine::Feature::tma}},
            {.id         = "sm_aware",
             .launch     = on_gpu(sm_aware),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline",
                            "sm_aware_scheduling"},
             .idea       = "one launch; the kinds alternate on each multiprocessor, by its tickets",
             .prediction = predict::ratio(1.35),
             .needs      = {machine::Feature::tma}},
            {.id         = "engine_ops",
             .launch     = on_gpu(engine_ops),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem"},
             .idea       = "the engine's ops one after another: wgmma for the prompt, splits for decoding",
             .prediction = predict::ratio(1.4),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-013"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(pod);

}  // namespace
}  // namespace fathom::lab::pod_attention
