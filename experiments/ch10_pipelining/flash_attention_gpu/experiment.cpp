// The formula of attention writes and reads T^2 scores a head for T outputs. What does a GPU gain when scores
// never leave the registers, and when the tensor cores do not wait for the exponentials?
#include "lab/experiment.h"

#include <algorithm>

#include "attention.h"
#include "core/rng.h"
#include "experiments/paged_attention_problem.h"

namespace fathom::lab::flash_attention_gpu {
namespace {

using paged_attention::pages_for;

constexpr int64_t kTileRows = 64;

int64_t tiles_for(int64_t tokens) { return (tokens + kTileRows - 1) / kTileRows; }
int64_t scored_tokens(int64_t tokens) { return tokens <= kMaxScoredTokens ? tokens : 0; }

Generate positions_in_order() {
  return generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
    for (int32_t t = 0; t < n; ++t) to[t] = t;
  });
}

// Normal. At check points some sinks lie so far below the scores that weights relative to them overflow.
Generate sinks_of(int64_t tokens) {
  return generate<float>([tokens](float* to, int64_t n, uint64_t seed) {
    fill_normal(to, n, seed, 0, 1);
    for (int64_t h = 0; tokens < 1024 && h < n; h += 3) to[h] -= h % 2 == 0 ? 60.0f : 100.0f;
  });
}

// kernels::PrefillTile of each: row, rows, sequence. Tiles end where pages end.
Generate tiles_of_rows(int64_t tokens) {
  return generate<int32_t>([tokens](int32_t* to, int64_t, uint64_t) {
    for (int64_t row = 0; row < tokens; row += kTileRows) {
      *to++ = static_cast<int32_t>(row);
      *to++ = static_cast<int32_t>(std::min(kTileRows, tokens - row));
      *to++ = 0;
    }
  });
}

}  // namespace

PromptAttention::PromptAttention(const Point& at, Arena& arena)
    : window(at["window"]),
      q(arena.input<bf16>({at["tokens"], kHeads, kHeadDim}, Normal{})),
      tiles(arena.input<bf16>({pages_for(at["tokens"]), kKvHeads, 2, kPage, kHeadDim}, Normal{})),
      pages(arena.input<int32_t>({1, pages_for(at["tokens"])}, Permutation{})),
      sinks(arena.input<float>({kHeads}, sinks_of(at["tokens"]))),
      positions(arena.input<int32_t>({at["tokens"]}, positions_in_order())),
      row_tiles(arena.input<int32_t>({tiles_for(at["tokens"]), 3}, tiles_of_rows(at["tokens"]))),
      out(arena.output<bf16>({at["tokens"], kHeads, kHeadDim})),
      gathered(arena.workspace<bf16>({2, kKvHeads, scored_tokens(at["tokens"]), kHeadDim})),
      scores(arena.workspace<float>(
          {kGroup, scored_tokens(at["tokens"]), (scored_tokens(at["tokens"]) + 7) / 8 * 8})),
      weights(arena.workspace<bf16>({kGroup, scores.extent(1), scores.extent(2)})) {}

Cost PromptAttention::cost() const {
  double pairs = 0;  // (token, position in its reach)
  for (int64_t t = 0; t < tokens(); ++t)
    pairs += static_cast<double>(window > 0 ? std::min(t + 1, window) : t + 1);
  return {.read      = q.bytes() + 4 * tokens() * kKvHeads * kHeadDim,
          .written   = out.bytes(),
          .flops     = 4.0 * kHeads * kHeadDim * pairs,
          .flop_type = DType::bf16};
}

void PromptAttention::check(Checker& checker) const {
  paged_attention::check_rows(checker, out, [&](int64_t t, int64_t h) {
    const int64_t first = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0;
    return paged_attention::RowReference(&q(t, h, 0), {kv(), pages.data(), h / kGroup}, kScale, sinks(h),
                                         first, t);
  });
}

const Experiment<PromptAttention> prompt_attention{
    .question =
        "What does attention over a prompt gain on a GPU when scores stay in registers, and when the tensor "
        "cores do not wait for the exponentials?",
    .limit = Limit::tensor_flops,
    // 2048 tokens: 34 GFLOP, and 1.1 GB of scores. 8192: 550 GFLOP. Every other layer of gpt-oss has a window
    // of 128: 4.2 and 17 GFLOP.
    .axes = {{"window", {0, 128}}, {"tokens", {2048, 8192}}},
    // Sizes around pages and tiles (64), and windows that begin anywhere in a page.
    .check_at = {{"window", {0, 1, 64, 100}}, {"tokens", {0, 1, 2, 63, 64, 65, 127, 129, 200}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {},
             .idea       = "the formula: two cuBLAS products, all scores in memory between them",
             .prediction = predict::share(0.05),
             .prepare    = prepared_on_gpu(scores_in_memory),
             .up_to      = {{"tokens", kMaxScoredTokens}}},
            {.id         = "flash",
             .launch     = on_gpu(flash),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea = "a CTA has 64 rows of a head and walks over the pages in reach; scores in registers; "
                     "mma.sync",
             .prediction = predict::ratio(5.5)},
            {.id         = "wgmma",
             .launch     = on_gpu(wgmma),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea       = "a warpgroup multiplies; the tensor cores read keys and values from shared memory",
             .prediction = predict::ratio(7),
             .needs      = {machine::Feature::wgmma}},
            {.id         = "tma_ring",
             .launch     = on_gpu(tma_ring),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "warp_specialization", "flash_attention"},
             .idea       = "a producer warp loads pages by TMA into a ring of mbarrier stages",
             .prediction = predict::ratio(7.3),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "shared_pages",
             .launch     = on_gpu(shared_pages),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "a CTA has 4 heads of a group: one load of a page serves 4 warpgroups",
             .prediction = predict::ratio(7.6),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "overlapped",
             .launch     = on_gpu(overlapped),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "exponentials of this page while the tensor cores add the last page's values",
             .prediction = predict::ratio(8),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "unified_max",
             .launch     = on_gpu(unified_max),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "weights relative to the sink: no maximum, and rescaling only before overflow",
             .prediction = predict::ratio(9),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "warpgroups",
             .launch     = on_gpu(warpgroups),
             .techniques = {"online_softmax", "tensor_cores", "multi_stage_pipeline", "completion_tokens",
                            "flash_attention"},
             .idea =
                 "the engine's op: as unified_max; warps take turns loading, CTAs of 2 or 4 heads, FP8 pages",
             .prediction = predict::share_at_least(0.45),
             .kind       = Kind::engine,
             .op         = "kernels/attention/prefill_attention.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-001", "attention-002", "attention-003", "attention-005"},
    .group   = "attention",
};
FATHOM_REGISTER(prompt_attention);

}  // namespace fathom::lab::flash_attention_gpu
