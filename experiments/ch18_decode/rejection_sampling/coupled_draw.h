// Tokens as functions of a law, a seed and a position: target and drafter draw with the same random numbers,
// so that where their laws are alike they draw the same token, and a draft is right if it is the token that
// the target draws anyway. Nothing is rejected or drawn again, and the answer does not depend on the drafter.
//
//   inverse CDF  one number u: the first token in the order of ids at which the sum of probabilities exceeds
//   u
//                (engine/sampler.cpp, where top-k, top-p or min-p rule tokens out)
//   Gumbel-max   a number for each token: the argmax of log p(v) - log(-log u_v) (core/gumbel.h)
//                Daliri, Musco, Suresh, "Coupling without Communication and Drafter-Invariant Speculative
//                Decoding", 2024 (arXiv 2408.07978)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/rng.h"

namespace fathom::lab::rejection_sampling {

// In (0, 1), of that seed and counter.
inline double uniform(uint32_t seed, uint32_t position, uint32_t index) {
  return (philox({position, index, 0, 0}, {seed, 0})[0] + 0.5) * 0x1p-32;
}

inline int draw_by_inverse_cdf(std::span<const double> law, uint32_t seed, uint32_t position) {
  double left = uniform(seed, position, 0);
  int last    = 0;
  for (size_t v = 0; v < law.size(); ++v) {
    if (law[v] == 0) continue;
    last = static_cast<int>(v);
    if ((left -= law[v]) < 0) break;
  }
  return last;
}

// No Gumbel number exceeds 22.9, that of the largest 32-bit u, so unlikely tokens need none.
inline int draw_by_gumbel_max(std::span<const double> law, uint32_t seed, uint32_t position) {
  constexpr double kLargest = 22.9;
  double best               = -INFINITY;
  int token                 = 0;
  for (size_t v = 0; v < law.size(); ++v) {
    if (law[v] == 0) continue;
    const double likely = std::log(law[v]);
    if (likely + kLargest < best) continue;
    const double g = likely - std::log(-std::log(uniform(seed, position, static_cast<uint32_t>(v) + 1)));
    if (g > best) best = g, token = static_cast<int>(v);
  }
  return token;
}

// The probability that both draw the same token.

// Rejection sampling's: 1 - TV, the most that any scheme can have for one token.
inline double accepted_by_rejection(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += std::min(p[v], q[v]);
  return sum;
}

inline double same_by_inverse_cdf(std::span<const double> p, std::span<const double> q) {
  double same = 0, below_p = 0, below_q = 0;
  for (size_t v = 0; v < p.size(); ++v) {
    same += std::max(std::min(below_p + p[v], below_q + q[v]) - std::max(below_p, below_q), 0.0);
    below_p += p[v], below_q += q[v];
  }
  return same;
}

// sum_i 1 / sum_j max(p_j / p_i, q_j / q_i): token i wins both races.
inline double same_by_gumbel_max(std::span<const double> p, std::span<const double> q) {
  double same = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0 || q[i] == 0) continue;
    double sum = 0;
    for (size_t j = 0; j < p.size(); ++j) sum += std::max(p[j] / p[i], q[j] / q[i]);
    same += 1 / sum;
  }
  return same;
}

}  // namespace fathom::lab::rejection_sampling
