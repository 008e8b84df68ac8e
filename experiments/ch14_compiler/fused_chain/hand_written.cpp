// sum = x + residual; y = clamp(sum * weight / rms(sum))       T x D, fp32
//
// bytes   16 T D   and 24 T D move: lines of sum and y are fetched before they are written
// flops   7 T D
// limit   memory bandwidth
// idea    the yardstick: two loops over a row, as one would write them by hand; between the operations
//         of a loop numbers stay in registers
#include <cmath>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "chain.h"
#include "hwy/highway.h"

namespace fathom::lab::fused_chain {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void row(const float* x, const float* residual, const float* weight, int64_t dim, float* sum, float* y) {
  const hn::ScalableTag<float> f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  // Four accumulators, because an addition takes four cycles.
  auto s0 = hn::Zero(f), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](auto& squares, int64_t d) {
    const auto v = hn::Add(hn::LoadU(f, x + d), hn::LoadU(f, residual + d));
    hn::StoreU(v, f, sum + d);
    squares = hn::MulAdd(v, v, squares);
  };
  int64_t d = 0;
  for (; d + 4 * lanes <= dim; d += 4 * lanes) {
    add(s0, d);
    add(s1, d + lanes);
    add(s2, d + 2 * lanes);
    add(s3, d + 3 * lanes);
  }
  float squares = hn::GetLane(hn::SumOfLanes(f, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; d < dim; ++d) {
    sum[d] = x[d] + residual[d];
    squares += sum[d] * sum[d];
  }

  const float scale = 1 / std::sqrt(squares / static_cast<float>(dim) + kEpsilon);
  const auto by = hn::Set(f, scale), low = hn::Set(f, -kLimit), high = hn::Set(f, kLimit);
  for (d = 0; d + lanes <= dim; d += lanes) {
    const auto v = hn::Mul(hn::Mul(hn::LoadU(f, sum + d), by), hn::LoadU(f, weight + d));
    hn::StoreU(hn::Min(hn::Max(v, low), high), f, y + d);
  }
  for (; d < dim; ++d) y[d] = std::min(std::max(sum[d] * scale * weight[d], -kLimit), kLimit);
}

}  // namespace

void hand_written(const Chain& p, Context&) {
  const int64_t dim = p.x.extent(1);
  for (int64_t t = 0; t < p.x.extent(0); ++t)
    row(&p.x(t, 0), &p.residual(t, 0), p.weight.data(), dim, &p.sum(t, 0), &p.y(t, 0));
}

}  // namespace fathom::lab::fused_chain
