// The problem: out(r, c) = exp(in(r, c) - max_c in(r, c)) / sum_c exp(in(r, c) - max_c in(r, c)), row by row,
// fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::online_softmax_cpu {

inline constexpr int64_t kBlock = 1024;  // of a row: 4 KiB, in L1 when it has been read once

struct Softmax {
  View<const float, 2> in;
  View<float, 2> out;
  View<float, 2> block_max;  // workspace: a number for each block of each row

  Softmax(const Point& at, Arena& arena)
      : in(arena.input<float>({at["rows"], at["cols"]}, Normal{.stddev = 2})),
        out(arena.output<float>({at["rows"], at["cols"]})),
        block_max(arena.workspace<float>({at["rows"], (at["cols"] + kBlock - 1) / kBlock})) {}

  // For each element: a comparison, a subtraction, an exponential (two to reduce, ten for the polynomial, one
  // to scale), an addition, a multiplication.
  Cost cost() const {
    return {.read = in.bytes(), .written = out.bytes(), .flops = 22.0 * static_cast<double>(in.size())};
  }

  void check(Checker& checker) const {
    struct Row {
      double max = 0, sum = 0;  // sum 0: not computed yet
    };
    std::vector<Row> rows(static_cast<size_t>(in.extent(0)));
    checker.values("out", out, [&](int64_t r, int64_t c) {
      Row& row = rows[static_cast<size_t>(r)];
      if (row.sum == 0) {
        row.max = in(r, 0);
        for (int64_t i = 1; i < in.extent(1); ++i) row.max = std::max<double>(row.max, in(r, i));
        for (int64_t i = 0; i < in.extent(1); ++i) row.sum += std::exp(in(r, i) - row.max);
      }
      // The distance to the maximum is rounded before it is an exponent, and the exponential turns that
      // absolute error into a relative one. Five roundings surround the sum, whose terms are all positive.
      const double distance = row.max - in(r, c), value = std::exp(-distance) / row.sum;
      return Sum{.value = value, .magnitude = value * (1 + distance), .length = in.extent(1) + 5};
    });
  }
};

void three_pass(const Softmax&, Context&);
void online(const Softmax&, Context&);
void kept(const Softmax&, Context&);
void threads(const Softmax&, Context&);
// Prepares the library's primitive; the returned function is timed.
Launch<Softmax> onednn_softmax(const Softmax&, Context&);

}  // namespace fathom::lab::online_softmax_cpu
