// Attention with a learned bias for each distance, over packed documents. What does the bias cost in a fused
// kernel, what do lists of blocks cost that every batch makes anew, and does a graph hide their launches?
#include "lab/experiment.h"

#include "lists_each_call.h"

namespace fathom::lab::flexattention {
namespace {

const Experiment<PackedDocuments> document_bias{
    .question =
        "Packed documents with a relative position bias: what does a fused kernel gain whose scores a "
        "functor "
        "changes, what does listing the blocks in each call cost, and does a graph save its launches?",
    .limit    = Limit::tensor_flops,
    .axes     = {{"tokens", {16384, 2048}}, {"documents", {8}}, {"head_size", {128, 64}}, {"reach", {128}}},
    .check_at = {{"tokens", {0, 1, 2, 63, 65, 127, 128, 129, 191, 193, 397}},
                 {"documents", {1, 3}},
                 {"head_size", {128, 64}},
                 {"reach", {1, 40}}},
    .variants =
        {
            {.id         = "dense_scores",
             .techniques = {},
             .idea       = "the formula: two cuBLAS products; the softmax between them adds the bias",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(dense_scores)},
            {.id         = "block_sparse",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores",
                            "block_sparsity", "flex_attention"},
             .idea       = "one kernel with the bias compiled in, over lists of the visible blocks",
             .prediction = predict::ratio_at_least(10),
             .prepare    = prepared_on_gpu(block_sparse),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "lists_each_call",
             .launch     = on_gpu(lists_each_call),
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores",
                            "block_sparsity", "flex_attention"},
             .idea       = "the documents are news: a call lists the blocks, then attends",
             .prediction = predict::ratio_at_least(8),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "graph",
             .techniques = {"kernel_fusion", "flash_attention", "tma_pipeline", "tensor_cores",
                            "block_sparsity", "flex_attention", "graph_replay"},
             .idea       = "those two launches as a graph, which serves any documents",
             .prediction = predict::ratio_at_least(8),
             .prepare    = prepared_on_gpu(graph),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"attention-008", "lab-012"},
    .group   = "attention",
};
FATHOM_REGISTER(document_bias);

}  // namespace
}  // namespace fathom::lab::flexattention
