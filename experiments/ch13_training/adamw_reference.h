// The reference for a step of adamw.h, in double, with the error that fp32 may have left (mlp_reference.h).
#pragma once

#include <cmath>

#include "experiments/ch13_training/adamw.h"
#include "experiments/ch13_training/mlp_reference.h"

namespace fathom::lab::adamw {

using mlp::Rounded, mlp::RoundedSum;

inline Sum in_fp32(Rounded a) { return {.value = a.value, .magnitude = a.error}; }

// To second order: of a gradient that is a difference, the error may be larger than the value.
inline Rounded square(Rounded g) {
  const double value = g.value * g.value;
  return {value, 2 * std::abs(g.value) * g.error + 0x1p-24 * g.error * g.error + value};
}

// What AdamW makes of a weight, its moments and its gradient.
struct Updated {
  Rounded w, m, v;

  Updated(int64_t step, double old_w, double old_m, double old_v, Rounded g) {
    const double b1 = kB1, b2 = kB2, t = static_cast<double>(step);
    RoundedSum m_sum, v_sum, w_sum;
    m_sum.add({.value = b1}, {.value = old_m});
    m_sum.add({.value = 1 - b1}, g);
    m = m_sum.result();
    v_sum.add({.value = b2}, {.value = old_v});
    v_sum.add({.value = 1 - b2}, square(g));
    v                 = v_sum.result();
    const double root = std::sqrt(1 - std::pow(b2, t)), by = std::sqrt(v.value) / root;
    const Rounded move{m.value / by, std::hypot(m.error / by, m.value / by * v.error / (2 * v.value)) +
                                         2 * std::abs(m.value) / by};
    w_sum.add({.value = 1 - static_cast<double>(kRate) * kDecay}, {.value = old_w});
    w_sum.add({.value = -kRate / (1 - std::pow(b1, t))}, move);
    w = w_sum.result();
  }
};

}  // namespace fathom::lab::adamw
