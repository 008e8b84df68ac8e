// A decode step reads the whole cache for one token of each sequence. What does it take to read it once, at
// memory's bandwidth, with 64 sequences and with one?
#include "lab/experiment.h"

#include <algorithm>

#include "attention.h"
#include "experiments/paged_attention_problem.h"

namespace fathom::lab::decode_attention_gpu {
namespace {

using paged_attention::pages_for;

// Into how many pieces split_kv cuts a row: some 8 CTAs for each SM of an H200, but at least two pages a
// piece.
int64_t pieces_for(int64_t sequences, int64_t reach) {
  constexpr int64_t kCtas = 1024;
  return std::clamp<int64_t>(kCtas / std::max<int64_t>(1, sequences * kKvHeads), 1,
                             std::max<int64_t>(1, pages_for(reach) / 2));
}

}  // namespace

DecodeAttention::DecodeAttention(const Point& at, Arena& arena)
    : DecodeRows(at, arena),
      tiles(arena.input<bf16>({pages.size(), kKvHeads, 2, kPage, kHeadDim}, Normal{})),
      piece_out(arena.workspace<float>({q.extent(0), kHeads, pieces_for(q.extent(0), reach()), kHeadDim})),
      piece_max_sum(arena.workspace<float>({q.extent(0), kHeads, piece_out.extent(2), 2})) {}

Cost DecodeAttention::cost() const { return cost_of_reading(4 * kKvHeads * kHeadDim); }

void DecodeAttention::check(Checker& checker) const { check_over(kv(), checker); }

const Experiment<DecodeAttention> decode_attention{
    .question =
        "With 8 query heads to a key-value head, what does it take for a decode step on a GPU to read its "
        "cache once, at memory's bandwidth, with many sequences and with one?",
    .limit = Limit::memory,
    // 64 sequences have 537 MB of keys and values, 8 have 67 MB, one has 8.4 MB. Every other layer of gpt-oss
    // has a window of 128: 16.8 MB for 64 sequences.
    .axes = {{"window", {0, 128}}, {"sequences", {64, 8, 1}}, {"context", {4096}}},
    // Sizes around pages (64) and pieces of two pages, 0, and windows that begin anywhere in a page.
    .check_at = {{"window", {0, 1, 300}},
                 {"sequences", {0, 1, 3}},
                 {"context", {0, 1, 2, 63, 64, 65, 129, 300, 701}}},
    .variants =
        {
            {.id         = "head_by_head",
             .launch     = on_gpu(head_by_head),
             .techniques = {"online_softmax", "paged_kv"},
             .idea       = "a CTA for each row and query head; 8 CTAs read the same keys and values, from L2",
             .prediction = predict::share(0.18)},
            {.id         = "grouped",
             .launch     = on_gpu(grouped),
             .techniques = {"online_softmax", "paged_kv", "register_blocking", "double_buffering"},
             .idea       = "a CTA for each row and key-value head: one read serves its 8 query heads",
             .prediction = predict::ratio(3.2)},
            {.id         = "split_kv",
             .launch     = on_gpu(split_kv),
             .techniques = {"online_softmax", "paged_kv", "register_blocking", "double_buffering",
                            "split_kv"},
             .idea       = "rows split along the context, merged by a second kernel",
             .prediction = predict::ratio(3.8)},
            {.id         = "tensor_cores",
             .launch     = on_gpu(tensor_cores),
             .techniques = {"online_softmax", "paged_kv", "split_kv", "tensor_cores", "multi_stage_pipeline",
                            "dsmem"},
             .idea       = "the engine's op: 8 heads are the columns of mma.sync, pieces merge in a cluster",
             .prediction = predict::share_at_least(0.75),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-015", "attention-017", "kv-006"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(decode_attention);

}  // namespace fathom::lab::decode_attention_gpu
