// What `fused` and `threads` share: weights [first, last).
#pragma once

#include <cmath>
#include <cstdint>

#include "adamw.h"
#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::fused_adamw_cpu {

namespace hn = hwy::HWY_NAMESPACE;

inline void fused_range(const AdamW& p, int64_t first, int64_t last) {
  const hn::ScalableTag<float> lanes;
  const auto N         = static_cast<int64_t>(hn::Lanes(lanes));
  const float rate_now = p.rate_now(), root = p.root();
  const auto b1 = hn::Set(lanes, kB1), rest1 = hn::Set(lanes, 1 - kB1), b2 = hn::Set(lanes, kB2),
             rest2 = hn::Set(lanes, 1 - kB2), kept = hn::Set(lanes, p.kept()),
             rate = hn::Set(lanes, rate_now), one_over_root = hn::Set(lanes, 1 / root),
             eps = hn::Set(lanes, kEps);
  int64_t i      = first;
  for (; i + N <= last; i += N) {
    const auto g  = hn::LoadU(lanes, &p.g(i));
    const auto m  = hn::MulAdd(b1, hn::LoadU(lanes, &p.m(i)), hn::Mul(rest1, g));
    const auto v  = hn::MulAdd(b2, hn::LoadU(lanes, &p.v(i)), hn::Mul(rest2, hn::Mul(g, g)));
    const auto by = hn::MulAdd(hn::Sqrt(v), one_over_root, eps);
    const auto w  = hn::NegMulAdd(rate, hn::Div(m, by), hn::Mul(kept, hn::LoadU(lanes, &p.w(i))));
    hn::StoreU(m, lanes, &p.new_m(i));
    hn::StoreU(v, lanes, &p.new_v(i));
    hn::StoreU(w, lanes, &p.new_w(i));
  }
  for (; i < last; ++i) {
    p.new_m(i) = kB1 * p.m(i) + (1 - kB1) * p.g(i);
    p.new_v(i) = kB2 * p.v(i) + (1 - kB2) * p.g(i) * p.g(i);
    p.new_w(i) = p.kept() * p.w(i) - rate_now * p.new_m(i) / (std::sqrt(p.new_v(i)) / root + kEps);
  }
}

}  // namespace fathom::lab::fused_adamw_cpu
