// The reference, in double, over the tokens of all ranks and the whole model.
#include "experiments/ch13_training/mlp_reference.h"
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

using mlp::RoundedSum, mlp::Table, mlp::Whole;

void Training::check(Checker& checker, const AllRanks<Training>& ranks) const {
  const int64_t part = tokens(), all = part * ranks.size();
  Table in(all, kModel), h(all, kModel), y(all, kModel), dh(all, kModel), dx(all, kModel);
  for (int64_t t = 0; t < all; ++t)
    for (int64_t d = 0; d < kModel; ++d) in(t, d).value = ranks[static_cast<int>(t / part)].x(t % part, d);

  Whole dense_layer{.w1 = w1, .w2 = w2, .tokens = all, .experts = 1, .hidden = kHidden};
  Whole expert_layer{.w1 = v1, .w2 = v2, .tokens = all, .experts = kExperts, .hidden = kExpertHidden};
  dense_layer.forward(in, h);
  expert_layer.forward(h, y);
  for (int64_t t = 0; t < all; ++t)  // y becomes the loss's gradient
    for (int64_t d = 0; d < kModel; ++d) {
      RoundedSum difference;
      difference.add(y(t, d));
      difference.add({.value = -ranks[static_cast<int>(t / part)].target(t % part, d)});
      y(t, d) = difference.result();
    }
  expert_layer.backward(y, dh);
  dense_layer.backward(dh, dx);

  checker.values("dense", dense, [&](int64_t which, int64_t unit, int64_t d) {
    return dense_layer.gradient(which, rank % 2 * (kHidden / 2) + unit, d, in, dh);
  });
  checker.values("experts", experts, [&](int64_t which, int64_t unit, int64_t d) {
    constexpr int64_t kHalf = kExpertHidden / 2;
    const int64_t expert    = rank / 2 * (kExperts / 2) + unit / kHalf;
    return expert_layer.gradient(which, expert * kExpertHidden + rank % 2 * kHalf + unit % kHalf, d, h, y);
  });
}

}  // namespace fathom::lab::device_mesh_cpu
