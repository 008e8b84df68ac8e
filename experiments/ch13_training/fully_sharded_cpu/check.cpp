// The reference, in double, over the tokens of all ranks and the whole model.
#include "experiments/ch13_training/adamw_reference.h"
#include "experiments/ch13_training/mlp_reference.h"
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

using adamw::in_fp32, mlp::RoundedSum, mlp::Table, mlp::Whole;

void Training::check(Checker& checker, const AllRanks<Training>& ranks) const {
  const int64_t part = tokens(), all = part * ranks.size();
  std::vector<Whole> layers;
  std::vector<Table> h(kLayers + 1, Table(all, kModel)), dh = h;
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto rows = [&](int64_t which) {
      return View<const float, 2>(&w(l, 0, which, 0), {kHidden, kModel}, {2 * kModel, 1});
    };
    layers.push_back({.w1 = rows(0), .w2 = rows(1), .tokens = all, .experts = 1, .hidden = kHidden});
  }
  for (int64_t t = 0; t < all; ++t)
    for (int64_t d = 0; d < kModel; ++d) h[0](t, d).value = ranks[static_cast<int>(t / part)].x(t % part, d);
  for (size_t l = 0; l < kLayers; ++l) layers[l].forward(h[l], h[l + 1]);
  for (int64_t t = 0; t < all; ++t)
    for (int64_t d = 0; d < kModel; ++d) {
      RoundedSum difference;
      difference.add(h[kLayers](t, d));
      difference.add({.value = -ranks[static_cast<int>(t / part)].target(t % part, d)});
      dh[kLayers](t, d) = difference.result();
    }
  for (size_t l = kLayers; l-- > 0;) layers[l].backward(dh[l + 1], dh[l]);

  const auto updated = [&](int64_t l, int64_t unit, int64_t which, int64_t d) {
    const auto at      = static_cast<size_t>(l);
    const int64_t of   = rank * kShard + unit;
    const Sum gradient = layers[at].gradient(which, of, d, h[at], dh[at + 1]);
    return adamw::Updated(kStep, w(l, of, which, d), m(l, of, which, d), v(l, of, which, d),
                          {gradient.value, gradient.magnitude});
  };
  checker.values("new_w", new_w, [&](auto... at) { return in_fp32(updated(at...).w); });
  checker.values("new_m", new_m, [&](auto... at) { return in_fp32(updated(at...).m); });
  checker.values("new_v", new_v, [&](auto... at) { return in_fp32(updated(at...).v); });
}

}  // namespace fathom::lab::fully_sharded_cpu
