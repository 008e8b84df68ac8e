// Documents packed into one sequence see only themselves, so most of the T x T scores are masked. What does a
// fused kernel gain over dense scores, and what when it skips blocks instead of masking them?
#include "lab/experiment.h"

#include "experiments/labs/flexattention/packed_documents.h"
#include "lab/python_variant.h"

namespace fathom::lab::flexattention {
namespace {

PythonArguments flash_attention_3(const PackedDocuments& p) {
  return {{"q", p.q}, {"k", p.k}, {"v", p.v}, {"out", p.out}, {"lse", p.lse}, {"documents", p.documents}};
}

const Experiment<PackedDocuments> documents{
    .question =
        "Documents packed into a sequence see only themselves: what does attention gain when masked scores "
        "never reach memory, and when blocks without a visible score are skipped?",
    .limit = Limit::tensor_flops,
    // 8 documents show 7 % of the scores, 1 document is a causal mask.
    .axes = {{"tokens", {16384, 2048}}, {"documents", {8, 1}}, {"head_size", {128, 64}}},
    // Around tiles (128 and 192 rows) and blocks (64 and 128 keys).
    .check_at = {{"tokens", {0, 1, 2, 63, 65, 127, 128, 129, 191, 193, 397}},
                 {"documents", {1, 3, 8}},
                 {"head_size", {128, 64}}},
    .variants =
        {
            {.id         = "dense_scores",
             .techniques = {},
             .idea = "the formula: two cuBLAS products, and between them a masked softmax of all scores",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(dense_scores)},
            {.id         = "every_block",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores"},
             .idea       = "one kernel, scores in registers; every block is computed and masked",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(every_block),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "block_sparse",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores",
                            "block_sparsity", "flex_attention"},
             .idea       = "lists of the visible blocks: the rest is never loaded, whole ones are not masked",
             .prediction = predict::ratio_at_least(4),
             .prepare    = prepared_on_gpu(block_sparse),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "padded",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores"},
             .idea       = "each document a sequence, padded to the longest and copied there and back",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(padded),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "ragged",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores",
                            "ragged_batching"},
             .idea       = "each document a sequence of a ragged batch: no block lies across an edge",
             .prediction = predict::ratio_at_least(4),
             .prepare    = prepared_on_gpu(ragged),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "flash_attention_3",
             .idea       = "FlashAttention 3 as vLLM carries it: each document a sequence of a ragged batch",
             .prediction = predict::ratio_at_least(4),
             .kind       = Kind::library,
             .needs      = {machine::Feature::tma, machine::Feature::wgmma},
             .python     = {.script = "flash_attention_3.py", .arguments = flash_attention_3}},
        },
    .backend = Backend::cuda,
    .sets    = 1,  // a call's workspace holds the scores of 1024 rows
    .catalog = {"attention-001", "attention-003", "attention-004", "attention-012", "lab-012"},
    .group   = "attention",
};
FATHOM_REGISTER(documents);

}  // namespace
}  // namespace fathom::lab::flexattention
