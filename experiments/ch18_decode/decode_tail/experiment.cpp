// A decode step ends when its last CTA does. With contexts of all lengths, what does the tail cost, and how
// should positions be dealt out so that all CTAs end together?
#include "lab/experiment.h"

#include "tail.h"

namespace fathom::lab::decode_tail {
namespace {

constexpr int64_t kKvHeads = 4, kHeadDim = 128;  // Qwen3-30B-A3B's

// ragged: lengths spread evenly up to the longest, in no order. one_long: one sequence, the others a
// sixteenth of it. equal: no tail but that of the last wave.
std::vector<int32_t> lengths_of(const std::string& mix, int64_t sequences, int64_t longest) {
  std::vector<int32_t> lengths;
  for (int64_t t = 0; t < sequences; ++t) {
    const int64_t rank   = t * 37 % sequences + 1;
    const int64_t length = mix == "ragged"     ? rank * longest / sequences
                           : mix == "one_long" ? (t == sequences / 2 ? longest : longest / 16)
                                               : longest;
    lengths.push_back(static_cast<int32_t>(length));
  }
  return lengths;
}

}  // namespace

DecodeTail::DecodeTail(const Point& at, Arena& arena)
    : RaggedDecode(lengths_of(at.text("mix"), at["sequences"], at["longest"]), kKvHeads, kHeadDim, arena) {}

void DecodeTail::check(Checker& checker) const {
  decode_row::check_rows(checker, out, [this](int64_t t, int64_t h) { return query(t, h); });
}

namespace {

PythonArguments flash_attention_3(const DecodeTail& p) {
  return {{"q", p.q},
          {"k", p.k},
          {"v", p.v},
          {"contexts", p.contexts},
          {"pages", p.pages},
          {"out", p.out},
          {"longest", p.longest}};
}

const Experiment<DecodeTail> tail{
    .question =
        "When the sequences of a decode step have contexts of all lengths, what does its tail cost, and how "
        "should positions be dealt out so that all CTAs end together?",
    .limit = Limit::memory,
    // 2 KiB a position. ragged: 545 MB for 64 sequences, 75 MB for 8. one_long: 83 and 24 MB. equal: 1074 and
    // 134 MB.
    .axes = {{"mix", {"ragged", "one_long", "equal"}}, {"sequences", {64, 8}}, {"longest", {8192}}},
    // Sizes around pages (64) and tiles (32), and contexts of 0.
    .check_at = {{"mix", {"ragged", "one_long", "equal"}},
                 {"sequences", {0, 1, 7}},
                 {"longest", {0, 1, 31, 64, 65, 701}}},
    .variants =
        {
            {.id         = "whole_rows",
             .launch     = on_gpu(whole_rows),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline"},
             .idea       = "a CTA for each sequence and key-value head",
             .prediction = predict::share(0.75),
             .needs      = {machine::Feature::tma}},
            {.id         = "equal_length",
             .launch     = on_gpu(equal_length),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "split_kv"},
             .idea       = "the same number of pieces of each, chosen by FlashAttention's heuristic",
             .prediction = predict::ratio(1),
             .needs      = {machine::Feature::tma}},
            {.id         = "equal_payload",
             .launch     = on_gpu(equal_payload),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "split_kv",
                            "persistent_kernel"},
             .idea = "the engine's op: a CTA a multiprocessor, each with as many positions as the others",
             .prediction = predict::ratio_at_least(1.1),
             .kind       = Kind::engine,
             .op         = "kernels/attention/paged_decode_attention.cu",
             .needs      = {machine::Feature::tma}},
            {.id         = "flash_attention_3",
             .idea       = "FlashAttention 3 as vLLM carries it: paged, splits chosen by its own heuristic",
             .prediction = predict::ratio(0.9),
             .kind       = Kind::library,
             .needs      = {machine::Feature::tma, machine::Feature::wgmma},
             .python     = {.script = "flash_attention_3.py", .arguments = flash_attention_3}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-014"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(tail);

}  // namespace
}  // namespace fathom::lab::decode_tail
