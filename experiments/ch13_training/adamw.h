// One step of AdamW (Loshchilov and Hutter, 2019, arXiv 1711.05101), in fp32.
//   m' = b1 m + (1 - b1) g        v' = b2 v + (1 - b2) g^2
//   w' = (1 - rate decay) w - rate (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)
// g is the gradient, t the number of the step, from 1. The harness keeps inputs as they are, so a step writes
// new arrays; it moves the bytes that a step in place would, and fetches the lines that it writes besides.
#pragma once

#include <cmath>
#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::adamw {

inline constexpr float kRate = 1e-3f, kDecay = 0.1f, kB1 = 0.9f, kB2 = 0.95f, kEps = 1e-8f;

// w' = kept w - rate m' / (sqrt(v') / root + eps)
struct Factors {
  float kept = 1 - kRate * kDecay, rate, root;

  explicit Factors(int64_t step)
      : rate(kRate / (1 - std::pow(kB1, static_cast<float>(step)))),
        root(std::sqrt(1 - std::pow(kB2, static_cast<float>(step)))) {}
};

struct Weights {
  const float *w, *m, *v, *g;
  float *new_w, *new_m, *new_v;

  Weights from(int64_t i) const { return {w + i, m + i, v + i, g + i, new_w + i, new_m + i, new_v + i}; }
};

// The first n weights, in one pass.
inline void update(const Factors& factors, const Weights& of, int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> lanes;
  const auto N  = static_cast<int64_t>(hn::Lanes(lanes));
  const auto b1 = hn::Set(lanes, kB1), rest1 = hn::Set(lanes, 1 - kB1), b2 = hn::Set(lanes, kB2),
             rest2 = hn::Set(lanes, 1 - kB2), kept = hn::Set(lanes, factors.kept),
             rate = hn::Set(lanes, factors.rate), one_over_root = hn::Set(lanes, 1 / factors.root),
             eps      = hn::Set(lanes, kEps);
  const int64_t whole = n - n % N;
  for (int64_t i = 0; i < whole; i += N) {
    const auto g  = hn::LoadU(lanes, of.g + i);
    const auto m  = hn::MulAdd(b1, hn::LoadU(lanes, of.m + i), hn::Mul(rest1, g));
    const auto v  = hn::MulAdd(b2, hn::LoadU(lanes, of.v + i), hn::Mul(rest2, hn::Mul(g, g)));
    const auto by = hn::MulAdd(hn::Sqrt(v), one_over_root, eps);
    const auto w  = hn::NegMulAdd(rate, hn::Div(m, by), hn::Mul(kept, hn::LoadU(lanes, of.w + i)));
    hn::StoreU(m, lanes, of.new_m + i);
    hn::StoreU(v, lanes, of.new_v + i);
    hn::StoreU(w, lanes, of.new_w + i);
  }
  for (int64_t i = whole; i < n; ++i) {
    of.new_m[i] = kB1 * of.m[i] + (1 - kB1) * of.g[i];
    of.new_v[i] = kB2 * of.v[i] + (1 - kB2) * of.g[i] * of.g[i];
    of.new_w[i] =
        factors.kept * of.w[i] - factors.rate * of.new_m[i] / (std::sqrt(of.new_v[i]) / factors.root + kEps);
  }
}

}  // namespace fathom::lab::adamw
