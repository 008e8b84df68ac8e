// y(t, h) = x(t, h) weight(h) / sqrt(mean_h x(t, h)^2 + eps)
//
// bytes   8 H a token
// limit   bandwidth of the cache that holds the rows
// idea    one row at a time, so that the second pass over it reads from L1
#include <cmath>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/norm/rmsnorm.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/rmsnorm_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void normalize(const float* x, const float* weight, int64_t width, double eps, float* y) {
  const hn::CappedTag<float, 16> f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  const auto full  = width - width % lanes;
  const auto tail  = hn::FirstN(f, static_cast<size_t>(width % lanes));

  auto sum_0 = hn::Zero(f), sum_1 = sum_0, sum_2 = sum_0, sum_3 = sum_0;
  const auto add_square = [&](auto& sum, auto number) HWY_ATTR { sum = hn::MulAdd(number, number, sum); };
  int64_t h             = 0;
  for (; h + 4 * lanes <= width; h += 4 * lanes) {
    add_square(sum_0, hn::LoadU(f, x + h));
    add_square(sum_1, hn::LoadU(f, x + h + lanes));
    add_square(sum_2, hn::LoadU(f, x + h + 2 * lanes));
    add_square(sum_3, hn::LoadU(f, x + h + 3 * lanes));
  }
  for (; h < full; h += lanes) add_square(sum_0, hn::LoadU(f, x + h));
  if (full < width) add_square(sum_1, hn::MaskedLoad(tail, f, x + full));
  const double squares =
      hn::GetLane(hn::SumOfLanes(f, hn::Add(hn::Add(sum_0, sum_1), hn::Add(sum_2, sum_3))));

  const auto scale =
      hn::Set(f, static_cast<float>(1 / std::sqrt(squares / static_cast<double>(width) + eps)));
  const auto scaled = [&](auto number, auto by) HWY_ATTR { return hn::Mul(hn::Mul(number, scale), by); };
  for (h = 0; h < full; h += lanes)
    hn::StoreU(scaled(hn::LoadU(f, x + h), hn::LoadU(f, weight + h)), f, y + h);
  if (full < width)
    hn::BlendedStore(scaled(hn::MaskedLoad(tail, f, x + full), hn::MaskedLoad(tail, f, weight + full)), tail,
                     f, y + full);
}

void normalize_rows(View<const float, 2> x, const float* weight, double eps, View<float, 2> y, int64_t begin,
                    int64_t end) {
  for (int64_t t = begin; t < end; ++t) normalize(&x(t, 0), weight, x.extent(1), eps, &y(t, 0));
}

}  // namespace
}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(normalize_rows);

void rmsnorm_cpu(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                 const Execution& on) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && weight.extent(0) == x.extent(1),
                "rmsnorm: x and y are [T, H], weight [H]");
  FATHOM_EXPECT(x.stride(1) == 1 && y.stride(1) == 1 && weight.stride(0) == 1,
                "rmsnorm: rows and weight must be contiguous");
  FATHOM_EXPECT(on.threads != nullptr, "rmsnorm: Execution needs threads");
  on.threads->parallel_for(x.extent(0), 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(normalize_rows)(x, weight.data(), eps, y, begin, end);
  });
}

}  // namespace fathom::kernels
#endif
