// The problem: one step of AdamW (Loshchilov and Hutter, 2019, arXiv 1711.05101) over n weights, in fp32.
//   m' = b1 m + (1 - b1) g        v' = b2 v + (1 - b2) g^2
//   w' = (1 - rate decay) w - rate (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)
// g is the gradient, t the number of the step, from 1. The harness keeps inputs as they are, so a step writes
// new arrays; it moves the bytes that a step in place would, and fetches the lines that it writes besides.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::fused_adamw_cpu {

constexpr float kRate = 1e-3f, kDecay = 0.1f, kB1 = 0.9f, kB2 = 0.95f, kEps = 1e-8f;

struct AdamW {
  View<const float, 1> w, m, v, g;
  View<float, 1> new_w, new_m, new_v;
  View<float, 1> denominator;  // workspace
  int64_t step;

  AdamW(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  float kept() const { return 1 - kRate * kDecay; }
  // w' = kept w - rate_now m' / (sqrt(v') / root + eps)
  float rate_now() const { return kRate / (1 - std::pow(kB1, static_cast<float>(step))); }
  float root() const { return std::sqrt(1 - std::pow(kB2, static_cast<float>(step))); }
};

void op_by_op(const AdamW& p, Context&);
void fused(const AdamW& p, Context&);
void threads(const AdamW& p, Context& context);

}  // namespace fathom::lab::fused_adamw_cpu
