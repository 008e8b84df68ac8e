// out = sum of a(i) b(i)                       n elements, fp32
//
// bytes   8 n
// flops   2 n
// limit   bandwidth of the level that holds the arrays
// idea    eight independent vectors of sums, so that FMA latency hides and only the loads are left; compiled
//         for every vector width, chosen when the program runs
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/ch08_occupancy/simd_dot/highway.cpp"
#include "hwy/foreach_target.h"

#include "dot.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::lab::simd_dot::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto load  = [&](const float* from, int64_t i) { return hn::LoadU(d, from + i); };

  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    s0 = hn::MulAdd(load(a, i + 0 * lanes), load(b, i + 0 * lanes), s0);
    s1 = hn::MulAdd(load(a, i + 1 * lanes), load(b, i + 1 * lanes), s1);
    s2 = hn::MulAdd(load(a, i + 2 * lanes), load(b, i + 2 * lanes), s2);
    s3 = hn::MulAdd(load(a, i + 3 * lanes), load(b, i + 3 * lanes), s3);
    s4 = hn::MulAdd(load(a, i + 4 * lanes), load(b, i + 4 * lanes), s4);
    s5 = hn::MulAdd(load(a, i + 5 * lanes), load(b, i + 5 * lanes), s5);
    s6 = hn::MulAdd(load(a, i + 6 * lanes), load(b, i + 6 * lanes), s6);
    s7 = hn::MulAdd(load(a, i + 7 * lanes), load(b, i + 7 * lanes), s7);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(load(a, i), load(b, i), s0);

  const auto s03 = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  const auto s47 = hn::Add(hn::Add(s4, s5), hn::Add(s6, s7));
  float sum      = hn::GetLane(hn::SumOfLanes(d, hn::Add(s03, s47)));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace fathom::lab::simd_dot::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::lab::simd_dot {

HWY_EXPORT(dot);

void highway(const Dot& p, Context&) {
  p.out(0) = HWY_DYNAMIC_DISPATCH(dot)(p.a.data(), p.b.data(), p.a.extent(0));
}

}  // namespace fathom::lab::simd_dot
#endif
