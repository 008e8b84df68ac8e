// One step of AdamW       n weights, fp32
//
// bytes   28 n must move; here 80 n are named and 96 n move, as the first write of each of four arrays
//         fetches its lines
// flops   14 n
// limit   memory bandwidth
// idea    baseline: a pass for each operation, as an eager framework makes without a fused optimizer
#include "adamw.h"

namespace fathom::lab::fused_adamw_cpu {

using namespace adamw;
namespace hn = hwy::HWY_NAMESPACE;

void op_by_op(const AdamW& p, Context&) {
  const int64_t n       = p.w.size();
  const float* const w  = p.w.data();
  const float* const m  = p.m.data();
  const float* const v  = p.v.data();
  const float* const g  = p.g.data();
  float* const new_w    = p.new_w.data();
  float* const new_m    = p.new_m.data();
  float* const new_v    = p.new_v.data();
  float* const by       = p.denominator.data();
  const Factors factors = p.factors();
  const float kept = factors.kept, rate = factors.rate, one_over_root = 1 / factors.root;

  for (int64_t i = 0; i < n; ++i) new_w[i] = kept * w[i];                       // decay
  for (int64_t i = 0; i < n; ++i) new_m[i] = m[i] + (1 - kB1) * (g[i] - m[i]);  // lerp
  for (int64_t i = 0; i < n; ++i) new_v[i] = kB2 * v[i];                        // mul
  for (int64_t i = 0; i < n; ++i) new_v[i] += (1 - kB2) * g[i] * g[i];          // addcmul
  const hn::ScalableTag<float> lanes;
  const auto N = static_cast<int64_t>(hn::Lanes(lanes));
  int64_t done = 0;
  for (; done + N <= n; done += N) hn::StoreU(hn::Sqrt(hn::LoadU(lanes, new_v + done)), lanes, by + done);
  for (; done < n; ++done) by[done] = std::sqrt(new_v[done]);             // sqrt
  for (int64_t i = 0; i < n; ++i) by[i] *= one_over_root;                 // div by a number
  for (int64_t i = 0; i < n; ++i) by[i] += kEps;                          // add
  for (int64_t i = 0; i < n; ++i) new_w[i] -= rate * (new_m[i] / by[i]);  // addcdiv
}

}  // namespace fathom::lab::fused_adamw_cpu
