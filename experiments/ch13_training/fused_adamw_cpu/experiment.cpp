// An optimizer does a dozen operations on each weight and needs each number once. Written operation by
// operation it moves every number several times.
#include "lab/experiment.h"

#include <cmath>

#include "adamw.h"

namespace fathom::lab::fused_adamw_cpu {

using namespace adamw;

namespace {

// Operations on 24-bit numbers whose results are sums of terms of one size.
Sum near(double value, double magnitude) { return {.value = value, .magnitude = magnitude, .length = 16}; }

}  // namespace

AdamW::AdamW(const Point& at, Arena& arena)
    : w(arena.input<float>({at["n"]}, Normal{0, 0.02})),
      m(arena.input<float>({at["n"]}, Normal{0, 1e-3})),
      v(arena.input<float>({at["n"]}, Uniform{0, 1e-6})),
      g(arena.input<float>({at["n"]}, Normal{0, 1e-3})),
      new_w(arena.output<float>({at["n"]})),
      new_m(arena.output<float>({at["n"]})),
      new_v(arena.output<float>({at["n"]})),
      denominator(arena.workspace<float>({at["n"]})),
      step(at["step"]) {}

Cost AdamW::cost() const {
  return {.read    = w.bytes() + m.bytes() + v.bytes() + g.bytes(),
          .written = new_w.bytes() + new_m.bytes() + new_v.bytes(),
          .flops   = 14 * static_cast<double>(w.size())};
}

// The definition in double, of the constants as floats hold them.
void AdamW::check(Checker& checker) const {
  const double b1 = kB1, b2 = kB2, t = static_cast<double>(step);
  const auto m_of = [&](int64_t i) { return b1 * m(i) + (1 - b1) * g(i); };
  const auto v_of = [&](int64_t i) { return b2 * v(i) + (1 - b2) * g(i) * static_cast<double>(g(i)); };
  checker.values("new_m", new_m, [&](int64_t i) { return near(m_of(i), std::abs(m(i)) + std::abs(g(i))); });
  checker.values("new_v", new_v, [&](int64_t i) { return near(v_of(i), v_of(i)); });
  checker.values("new_w", new_w, [&](int64_t i) {
    const double by   = std::sqrt(v_of(i) / (1 - std::pow(b2, t))) + kEps;
    const double rate = kRate / (1 - std::pow(b1, t));
    const double move = (std::abs(m(i)) + std::abs(g(i))) / by;
    return near((1 - static_cast<double>(kRate) * kDecay) * w(i) - rate * m_of(i) / by,
                std::abs(w(i)) + rate * move);
  });
}

namespace {

const Experiment<AdamW> experiment{
    .question = "How much of an AdamW step is moving numbers that one pass would move once?",
    .limit    = Limit::memory,
    // 2^23: 7 arrays of 34 MB, in DRAM. 2^14: 0.5 MB, in L2 or L3.
    .axes     = {{"n", {1 << 23, 1 << 14}}, {"step", {1000}}},
    .quick    = {{"n", {1 << 23}}},
    .check_at = {{"n", {0, 1, 7, 8, 15, 16, 17, 61, 1009}}, {"step", {1, 2, 1000}}},
    .variants =
        {
            {.id         = "op_by_op",
             .launch     = op_by_op,
             .techniques = {},
             .idea       = "eight passes: decay, lerp, mul, addcmul, sqrt, div, add, addcdiv",
             .prediction = predict::share(0.25)},
            {.id         = "fused",
             .launch     = fused,
             .techniques = {"kernel_fusion", "fused_optimizer"},
             .idea       = "one pass over w, m, v and g",
             .prediction = predict::ratio(2.7)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"kernel_fusion", "fused_optimizer", "thread_parallel_loops"},
             .idea       = "the same on all threads",
             .prediction = predict::ratio(4.5),
             .threads    = kAllThreads},
        },
    .catalog = {"training-006"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::fused_adamw_cpu
