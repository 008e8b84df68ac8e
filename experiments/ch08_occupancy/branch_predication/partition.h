// The problem: the partition step of quicksort. Elements above the threshold go to the front of `out` in
// order, the others to its back in reverse order. x is uniform in [0, 1), so the threshold decides how many
// go where.
#pragma once

#include <vector>

#include "lab/problem.h"

namespace fathom::lab::branch_predication {

struct Partition {
  float threshold;
  View<const float, 1> in;
  View<float, 1> out;

  Partition(const Point& at, Arena& arena)
      : threshold(1 - static_cast<float>(at["above_percent"]) / 100),
        in(arena.input<float>({at["n"]}, Uniform{0, 1})),
        out(arena.output<float>({at["n"]})) {}

  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  void check(Checker& checker) const {
    std::vector<double> front, back;
    for (int64_t i = 0; i < in.extent(0); ++i) (in(i) > threshold ? front : back).push_back(in(i));
    front.insert(front.end(), back.rbegin(), back.rend());
    checker.values("out", out, [&](int64_t i) { return front[static_cast<size_t>(i)]; });
  }
};

void branch(const Partition& p, Context& context);
void predicated(const Partition& p, Context& context);
void compressed(const Partition& p, Context& context);

}  // namespace fathom::lab::branch_predication
