// Softmax needs the maximum before the sum and the sum before the result: three walks over a row, by the
// definition. Correcting the sum when the maximum grows makes it two; a row held in registers makes it one.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "softmax.h"

namespace fathom::lab::online_softmax_gpu {

Softmax::Softmax(const Point& at, Arena& arena)
    : in(arena.input<bf16>({at["rows"], at["cols"]}, Normal{.stddev = 2})),
      out(arena.output<bf16>({at["rows"], at["cols"]})) {}

// For each element: a comparison, a multiply-add, an exponential (one instruction here), an addition, a
// multiplication.
Cost Softmax::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 6.0 * static_cast<double>(in.size())};
}

void Softmax::check(Checker& checker) const {
  struct Row {
    double max = 0, sum = 0;  // sum 0: not computed yet
  };
  std::vector<Row> rows(static_cast<size_t>(in.extent(0)));
  const auto at = [&](int64_t r, int64_t c) -> double { return static_cast<float>(in(r, c)); };
  checker.values("out", out, [&](int64_t r, int64_t c) {
    Row& row = rows[static_cast<size_t>(r)];
    if (row.sum == 0) {
      row.max = at(r, 0);
      for (int64_t i = 1; i < in.extent(1); ++i) row.max = std::max(row.max, at(r, i));
      for (int64_t i = 0; i < in.extent(1); ++i) row.sum += std::exp(at(r, i) - row.max);
    }
    // The distance to the maximum is rounded before it is an exponent, and the exponential turns that
    // absolute error into a relative one. Five roundings surround the sum, whose terms are all positive.
    const double distance = row.max - at(r, c), value = std::exp(-distance) / row.sum;
    return Sum{.value = value, .magnitude = value * (1 + distance), .length = in.extent(1) + 5};
  });
}

const Experiment<Softmax> softmax{
    .question = "What does a softmax gain from every walk over the row that it saves?",
    .limit    = Limit::memory,
    // 8192 x 8192: 268 MB cross memory. 32768: the longest row that registers hold, 1 GiB.
    .axes     = {{"cols", {8192, 32768}}, {"rows", {8192}}},
    .check_at = {{"cols",
                  {1, 2, 7, 8, 9, 61, 248, 1000, 1024, 1032, 4097, 4104, 8192, 8200, 16392, 32767, 32768,
                   32776}},
                 {"rows", {0, 1, 7, 9}}},
    .variants =
        {
            {.id         = "three_pass",
             .launch     = on_gpu(three_pass),
             .techniques = {},
             .idea = "one block a row: maximum, sum of exponentials, result; the last two hit the caches",
             .prediction = predict::share(0.65)},
            {.id         = "online",
             .launch     = on_gpu(online),
             .techniques = {"online_softmax"},
             .idea       = "maximum and sum in one walk, each thread with a maximum of its own",
             .prediction = predict::ratio(1.2)},
            {.id         = "registers",
             .launch     = on_gpu(registers),
             .techniques = {"online_softmax", "register_blocking", "cache_hints"},
             .idea       = "one walk: a thread keeps its exponentials, and corrects them by one factor",
             .prediction = predict::share_at_least(0.86)},
            {.id         = "cudnn",
             .idea       = "cudnnSoftmaxForward, the accurate algorithm",
             .prediction = predict::share(0.6),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cudnn_softmax)},
            {.id         = "triton",
             .idea       = "Triton, the way of its tutorial: a program holds a row; warps tuned",
             .prediction = predict::share(0.84),
             .kind       = Kind::library,
             .python     = {.script = "triton_softmax.py",
                            .arguments =
                                [](const Softmax& p) {
                              return PythonArguments{{"x", p.in}, {"out", p.out}};
                            }}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-002"},
    .group   = "softmax",
};
FATHOM_REGISTER(softmax);

}  // namespace fathom::lab::online_softmax_gpu
