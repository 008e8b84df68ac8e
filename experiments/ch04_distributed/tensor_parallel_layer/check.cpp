// The reference, in double, from the parts of all ranks.
#include "mlp.h"

namespace fathom::lab::tensor_parallel_layer {

void Mlp::check(Checker& checker, const AllRanks<Mlp>& ranks) const {
  const auto T = static_cast<size_t>(tokens());
  std::vector<double> sum(T * kModel), size(T * kModel);  // of x: values, and magnitudes of their terms
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += ranks[rank].part.data()[i];
      size[i] += std::abs(static_cast<double>(ranks[rank].part.data()[i]));
    }
  std::vector<double> unit(T * kHidden), terms(T * kHidden);
  for (size_t t = 0; t < T; ++t)
    for (int64_t n = 0; n < kHidden; ++n) {
      double value = 0, magnitude = 0;
      for (int64_t k = 0; k < kModel; ++k) {
        const double w = w1(n, k);
        const size_t i = t * kModel + static_cast<size_t>(k);
        value += sum[i] * w;
        magnitude += size[i] * std::abs(w);
      }
      // A closed unit's error is lost, but one near zero may be on either side of it.
      const bool closed                           = value < -0x1p-17 * magnitude;
      unit[t * kHidden + static_cast<size_t>(n)]  = std::max(value, 0.0);
      terms[t * kHidden + static_cast<size_t>(n)] = closed ? 0 : magnitude;
    }
  checker.values("y", y, [&](int64_t t, int64_t n) {
    Sum want{.length = kModel + kHidden};
    for (int64_t k = 0; k < kHidden; ++k) {
      const size_t i = static_cast<size_t>(t * kHidden + k);
      want.value += unit[i] * w2(n, k);
      want.magnitude += terms[i] * std::abs(static_cast<double>(w2(n, k)));
    }
    return want;
  });
}

}  // namespace fathom::lab::tensor_parallel_layer
