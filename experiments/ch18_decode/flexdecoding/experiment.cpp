// ALiBi, a relative-position bias, a soft cap, a window: each changes or masks the scores of a decode step,
// and an eager framework then keeps all of them in memory. What does a functor compiled into the kernel cost?
#include "lab/experiment.h"

#include <cmath>

#include "flex.h"

namespace fathom::lab::flexdecoding {
namespace {

// Heads of 64 as in gpt-oss, of 128 as in Qwen3-30B-A3B: 2 KiB a position with both.
int64_t kv_heads_of(int64_t head_dim) { return head_dim == 64 ? 8 : 4; }

Score score_of(const std::string& name) {
  const char* const names[] = {"plain", "window", "alibi", "relative_bias", "soft_cap"};
  for (int i = 0; i < 5; ++i)
    if (name == names[i]) return static_cast<Score>(i);
  FATHOM_EXPECT(false, "flexdecoding: no score is called " + name);
}

std::vector<int32_t> lengths_of(const Point& at) {
  return std::vector<int32_t>(static_cast<size_t>(at["sequences"]), static_cast<int32_t>(at["context"]));
}

}  // namespace

FlexDecode::FlexDecode(const Point& at, Arena& arena)
    : RaggedDecode(lengths_of(at), kv_heads_of(at["head_dim"]), at["head_dim"], arena),
      score(score_of(at.text("score"))),
      slopes(arena.input<float>({q.extent(1)}, generate<float>([](float* to, int64_t heads, uint64_t) {
                                  for (int64_t h = 0; h < heads; ++h)
                                    to[h] =
                                        std::exp2(-8 * static_cast<float>(h + 1) / static_cast<float>(heads));
                                }))),
      bias(arena.input<float>({q.extent(1), 2 * kReach + 1}, Normal{})) {
  const int64_t row = (std::max<int64_t>(1, longest) + 7) / 8 * 8, rows = q.extent(0) * q.extent(1);
  key_rows   = arena.workspace<bf16>({q.extent(0), k.extent(1), row, q.extent(2)});
  value_rows = arena.workspace<bf16>({q.extent(0), k.extent(1), row, q.extent(2)});
  scores     = arena.workspace<float>({rows, row});
  weights    = arena.workspace<bf16>({rows, row});
}

Cost FlexDecode::cost() const { return cost_of(q.extent(0) * std::min<int64_t>(longest, window())); }

void FlexDecode::check(Checker& checker) const {
  decode_row::check_rows(checker, out, [this](int64_t t, int64_t h) {
    decode_row::Query of = query(t, h);
    of.first             = std::max<int64_t>(0, of.context - window());
    of.score             = [this, h](double product, int64_t distance) {
      switch (score) {
        case Score::alibi:
          return product - static_cast<double>(slopes(h)) * static_cast<double>(distance);
        case Score::relative_bias:
          return product + static_cast<double>(bias(h, kReach - std::min<int64_t>(distance, kReach)));
        case Score::soft_cap:
          return kCap * std::tanh(product / kCap);
        default:
          return product;
      }
    };
    return of;
  });
}

namespace {

const Experiment<FlexDecode> flex{
    .question =
        "When a bias, a soft cap or a window changes the scores of a decode step, what does a functor in the "
        "kernel gain over a pass through memory, and what does it cost against plain attention?",
    .limit = Limit::memory,
    // 537 MB of keys and values for 64 sequences, 67 MB for 8.
    .axes = {{"score", {"relative_bias", "plain"}},
             {"head_dim", {128, 64}},
             {"sequences", {64}},
             {"context", {4096}}},
    // Sizes around pages (64) and tiles (32), contexts of 0, and one beyond the window (128) and the reach of
    // the bias (100).
    .check_at = {{"score", {"plain", "window", "alibi", "relative_bias", "soft_cap"}},
                 {"head_dim", {128, 64}},
                 {"sequences", {0, 3}},
                 {"context", {0, 1, 65, 301}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {"paged_kv"},
             .idea       = "pages gathered; cuBLAS products, and a pass through all scores for the functor",
             .prediction = predict::share(0.25),
             .prepare    = prepared_on_gpu(scores_in_memory)},
            {.id         = "functor_in_kernel",
             .launch     = on_gpu(functor_in_kernel),
             .techniques = {"paged_kv", "online_softmax", "tensor_cores", "multi_stage_pipeline", "split_kv",
                            "flex_attention"},
             .idea       = "the engine's op: the functor sees each score in a register",
             .prediction = predict::share_at_least(0.85),
             .kind       = Kind::engine,
             .op         = "kernels/attention/paged_decode_attention.cu",
             .needs      = {machine::Feature::tma}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-008", "attention-009"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(flex);

}  // namespace
}  // namespace fathom::lab::flexdecoding
