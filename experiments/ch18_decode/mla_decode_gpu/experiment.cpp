// In multi-head latent attention all query heads share one latent a position, which is key and value at once.
// What does it take for a decode step to read each latent once?
#include "lab/experiment.h"

#include <algorithm>

#include "experiments/ch18_decode/decode_row.h"
#include "kernels/attention/mla_decode.h"
#include "mla.h"

namespace fathom::lab::mla_decode_gpu {
namespace {

using kernels::kMlaKey, kernels::kMlaPage, kernels::kMlaValue;

constexpr int64_t pages_for(int64_t context) { return (context + kMlaPage - 1) / kMlaPage; }
constexpr int64_t row_of(int64_t context) { return (std::max<int64_t>(1, context) + 7) / 8 * 8; }

}  // namespace

MlaStep::MlaStep(const Point& at, Arena& arena)
    : context(at["context"]),
      q(arena.input<bf16>({at["sequences"], at["heads"], kMlaKey}, Normal{})),
      latent(arena.input<bf16>({at["sequences"] * pages_for(context), kMlaPage, kMlaKey}, Normal{})),
      contexts(arena.input<int32_t>({at["sequences"]},
                                    generate<int32_t>([length = context](int32_t* to, int64_t n, uint64_t) {
                                      std::fill_n(to, n, static_cast<int32_t>(length));
                                    }))),
      pages(arena.input<int32_t>({at["sequences"], pages_for(context)}, Permutation{})),
      out(arena.output<bf16>({at["sequences"], at["heads"], kMlaValue})),
      partials(arena.workspace<float>({kernels::kMlaWorkspace})),
      rows(arena.workspace<bf16>({at["sequences"], 1, row_of(context), kMlaKey})),
      scores(arena.workspace<float>({at["sequences"] * at["heads"], row_of(context)})),
      weights(arena.workspace<bf16>({at["sequences"] * at["heads"], row_of(context)})) {}

Cost MlaStep::cost() const {
  const kernels::Cost of = kernels::mla_decode_cost(q.extent(0), q.extent(1), q.extent(0) * context);
  return {.read      = static_cast<int64_t>(of.read),
          .written   = static_cast<int64_t>(of.written),
          .flops     = of.flops,
          .flop_type = DType::bf16};
}

void MlaStep::check(Checker& checker) const {
  decode_row::check_rows(checker, out, [this](int64_t t, int64_t h) -> decode_row::Query {
    return {.numbers = &q(t, h, 0),
            .size    = kMlaKey,
            .scale   = static_cast<double>(kScale),
            .first   = 0,
            .context = context,
            .at      = [this, t](int64_t j) -> decode_row::KeyAndValue {
              const bf16* row = &latent(pages(t, j / kMlaPage), j % kMlaPage, 0);
              return {row, row};
            }};
  });
}

namespace {

PythonArguments flash_mla(const MlaStep& p) {
  return {{"q", p.q},         {"latent", p.latent}, {"contexts", p.contexts},
          {"pages", p.pages}, {"out", p.out},       {"scale", kScale}};
}

const Experiment<MlaStep> mla_step{
    .question =
        "When all query heads share one latent a position, what does it take for a decode step on a GPU to "
        "read each latent once, at memory's bandwidth?",
    .limit = Limit::memory,
    // 64 sequences have 302 MB of latents, 8 have 38 MB. With 128 heads, all of DeepSeek-V3's on one GPU, the
    // tensor cores need longer than memory.
    .axes  = {{"heads", {64, 16, 128}}, {"sequences", {64}}, {"context", {4096}}},
    .quick = {{"sequences", {32}}},
    // Sizes around pages (64) and tiles of heads (64).
    .check_at = {{"heads", {1, 16, 65, 128}}, {"sequences", {0, 1, 3}}, {"context", {0, 1, 64, 65, 301}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {"paged_kv"},
             .idea = "latents gathered from pages; two cuBLAS products, all scores in memory between them",
             .prediction = predict::share(0.19),
             .prepare    = prepared_on_gpu(scores_in_memory)},
            {.id         = "flash",
             .launch     = on_gpu(flash),
             .techniques = {"paged_kv", "online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "split_kv", "mla"},
             .idea       = "one kernel by mma.sync: a block of latents in shared memory is keys, then values",
             .prediction = predict::ratio(2.6)},
            {.id         = "warpgroups",
             .launch     = on_gpu(warpgroups),
             .techniques = {"paged_kv", "online_softmax", "tensor_cores", "tma_pipeline", "completion_tokens",
                            "warp_specialization", "split_kv", "mla"},
             .idea = "the engine's op: scores by one warpgroup, halves of the output by two, equal ranges of "
                     "blocks",
             .prediction = predict::share_at_least(0.7),
             .kind       = Kind::engine,
             .op         = "kernels/attention/mla_decode.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "flash_mla",
             .idea       = "FlashMLA as vLLM carries it; its schedule is computed before",
             .prediction = predict::ratio(4.5),
             .kind       = Kind::library,
             .needs      = {machine::Feature::tma, machine::Feature::wgmma},
             .python     = {.script = "flash_mla.py", .arguments = flash_mla}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-010"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(mla_step);

}  // namespace
}  // namespace fathom::lab::mla_decode_gpu
