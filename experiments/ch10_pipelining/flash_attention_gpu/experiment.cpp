// Attention by the formula writes T^2 scores for every head and reads them back, for T outputs. What does a
// GPU gain when they never leave the registers, and when the tensor cores do not wait for the exponentials?
#include "lab/experiment.h"

#include <algorithm>

#include "attention.h"
#include "experiments/paged_attention_problem.h"

namespace fathom::lab::flash_attention_gpu {
namespace {

using paged_attention::pages_for;

constexpr int64_t kTileRows = 64;

int64_t tiles_for(int64_t tokens) { return (tokens + kTileRows - 1) / kTileRows; }
int64_t scored(int64_t tokens) { return tokens <= kMostScored ? tokens : 0; }

Generate positions_in_order() {
  return generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
    for (int32_t t = 0; t < n; ++t) to[t] = t;
  });
}

// Row, rows and sequence of each, which end where pages do.
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
      sinks(arena.input<float>({kHeads}, Normal{})),
      positions(arena.input<int32_t>({at["tokens"]}, positions_in_order())),
      row_tiles(arena.input<int32_t>({tiles_for(at["tokens"]), 3}, tiles_of_rows(at["tokens"]))),
      out(arena.output<bf16>({at["tokens"], kHeads, kHeadDim})),
      gathered(arena.workspace<bf16>({2, kKvHeads, scored(at["tokens"]), kHeadDim})),
      scores(arena.workspace<float>({kGroup, scored(at["tokens"]), (scored(at["tokens"]) + 7) / 8 * 8})),
      weights(arena.workspace<bf16>({kGroup, scores.extent(1), scores.extent(2)})) {}

Cost PromptAttention::cost() const {
  double pairs = 0;  // of a token and a position in its reach
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
        "What does attention over a prompt gain on a GPU when scores never leave the registers, and when the "
        "tensor cores need not wait for the exponentials?",
    .limit = Limit::tensor_flops,
    // 2048 tokens: 34 GFLOP, and 1.1 GB of scores. 8192: 550 GFLOP. A window of 128 is that of every other
    // layer of gpt-oss: 4.2 and 17 GFLOP.
    .axes = {{"window", {0, 128}}, {"tokens", {2048, 8192}}},
    // Around pages and tiles (64), and windows that begin anywhere in a page.
    .check_at = {{"window", {0, 1, 64, 100}}, {"tokens", {0, 1, 2, 63, 64, 65, 127, 129, 200}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {},
             .idea       = "the formula: products by cuBLAS, and all scores in memory between them",
             .prediction = predict::share(0.05),
             .prepare    = prepared_on_gpu(scores_in_memory),
             .up_to      = {{"tokens", kMostScored}}},
            {.id         = "flash",
             .launch     = on_gpu(flash),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea       = "64 rows of a head walk over the pages in reach, scores in registers; mma.sync",
             .prediction = predict::ratio(5.5)},
            {.id         = "warpgroups",
             .launch     = on_gpu(warpgroups),
             .techniques = {"online_softmax", "tensor_cores", "multi_stage_pipeline", "completion_tokens",
                            "flash_attention"},
             .idea       = "the engine's op: wgmma, exponentials of one page while another is multiplied",
             .prediction = predict::share_at_least(0.45),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-001", "attention-002", "attention-003", "attention-005"},
};
FATHOM_REGISTER(prompt_attention);

}  // namespace fathom::lab::flash_attention_gpu
