// A walk over bf16 logits takes one exponential for every 2 bytes. At the rate of DRAM that leaves about 14
// instructions for an element: few enough that it matters which ones the compiler chooses.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include "logsumexp.h"

namespace fathom::lab::inline_ptx {

LogSumExp::LogSumExp(const Point& at, Arena& arena)
    : in(arena.input<bf16>({at["rows"], at["cols"]}, Normal{.stddev = 2})),
      out(arena.output<float>({at["rows"]})) {}

// For each element: a comparison, a subtraction, an exponential counted as two, an addition.
Cost LogSumExp::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 5.0 * static_cast<double>(in.size())};
}

Sum LogSumExp::expected(int64_t r) const {
  const int64_t cols = in.extent(1);
  const auto at      = [&](int64_t c) -> double { return static_cast<float>(in(r, c)); };
  double max = at(0), sum = 0;
  for (int64_t c = 1; c < cols; ++c) max = std::max(max, at(c));
  for (int64_t c = 0; c < cols; ++c) sum += std::exp(at(c) - max);
  // The logarithm turns the sum's relative error, of C positive terms, into an absolute one; beside it, what
  // was subtracted in every exponent, and is added in the end, is rounded once.
  const double once = std::abs(max) / std::sqrt(static_cast<double>(cols));
  return {.value = max + std::log(sum), .magnitude = 1 + once, .length = cols};
}

const Experiment<LogSumExp> logsumexp{
    .question = "Does it pay to choose instructions by hand when an element may cost 14 of them?",
    .limit    = Limit::memory,
    // 50304: the vocabulary of GPT-2, padded. 824 MB.
    .axes     = {{"cols", {50304}}, {"rows", {8192}}},
    .check_at = {{"cols", {1, 2, 7, 8, 9, 61, 248, 1000, 4088, 4096, 4104, 16383, 16384, 16392, 40960}},
                 {"rows", {0, 1, 7}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {"online_softmax"},
             .idea       = "expf and fmaxf: 13 instructions an element",
             .prediction = predict::share(0.78)},
            {.id         = "intrinsics",
             .launch     = on_gpu(intrinsics),
             .techniques = {"online_softmax", "mixed_precision"},
             .idea = "__expf: the special-function unit, guarded for the smallest numbers; 10.5 instructions",
             .prediction = predict::ratio(1.12)},
            {.id         = "ptx",
             .launch     = on_gpu(ptx),
             .techniques = {"online_softmax", "mixed_precision", "inline_ptx"},
             .idea = "ex2.approx.ftz behind a multiply-add, max.bf16x2 before unpacking; 5.2 instructions",
             .prediction = predict::ratio_at_least(1.15)},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(logsumexp);

}  // namespace fathom::lab::inline_ptx
