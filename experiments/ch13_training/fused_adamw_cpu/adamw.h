// The problem: one step of AdamW (../adamw.h) over n weights.
#pragma once

#include <cstdint>

#include "experiments/ch13_training/adamw.h"
#include "lab/problem.h"

namespace fathom::lab::fused_adamw_cpu {

struct AdamW {
  View<const float, 1> w, m, v, g;
  View<float, 1> new_w, new_m, new_v;
  View<float, 1> denominator;  // workspace
  int64_t step;

  AdamW(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  adamw::Factors factors() const { return adamw::Factors(step); }
  adamw::Weights weights() const {
    return {w.data(), m.data(), v.data(), g.data(), new_w.data(), new_m.data(), new_v.data()};
  }
};

void op_by_op(const AdamW& p, Context&);
void fused(const AdamW& p, Context&);
void threads(const AdamW& p, Context& context);

}  // namespace fathom::lab::fused_adamw_cpu
