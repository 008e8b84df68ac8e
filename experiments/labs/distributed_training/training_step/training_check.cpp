// The reference, in double, over the tokens of both ranks and the whole model, on one process.
//
// A variant that exchanges in fp8 is compared with a step whose forward and backward passes read weights as
// E4M3 rounds them: that rounding is a function of the checkpoint alone, so it is repeated here and needs no
// tolerance. What E5M2 does to a gradient cannot be repeated, because the numbers that are rounded already
// carry fp32's errors; it is bounded. A code is off by at most 1/8 of the number, or, where it is subnormal,
// by half of the smallest number, 2^-17 / 57344 of the largest in the message. Only the other rank's part of
// a sum is rounded.
#include <algorithm>
#include <vector>

#include "experiments/ch13_training/adamw_reference.h"
#include "experiments/ch13_training/fp8_codes.h"
#include "experiments/ch13_training/mlp_reference.h"
#include "training.h"

namespace fathom::lab::distributed_training {
namespace {

using adamw::in_fp32, mlp::Rounded, mlp::RoundedSum, mlp::Table, mlp::Whole;

constexpr double kRoundOff = 0x1p-24;  // of fp32: the unit of a Rounded's error

// All weights as a step's products read them. A rank's shard of a layer is one message with a scale.
std::vector<float> weights_in_products(View<const float, 4> w, Wire wire) {
  std::vector<float> read(w.data(), w.data() + w.size());
  if (wire == Wire::fp32) return read;
  constexpr auto kMessage = static_cast<size_t>(kShard * kUnit);
  for (size_t first = 0; first < read.size(); first += kMessage) {
    const std::span<float> message(&read[first], kMessage);
    const float scale = fp8::scale_for<fp8_e4m3>(fp8::largest(std::span<const float>(message)));
    for (float& weight : message) weight = static_cast<float>(fp8_e4m3(weight * scale)) / scale;
  }
  return read;
}

double largest(Table& table, int64_t rows, int64_t columns) {
  double most = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) most = std::max(most, std::abs(table(r, c).value));
  return most;
}

}  // namespace

void Training::check(Checker& checker, const AllRanks<Training>& ranks) const {
  const int64_t part = tokens(), all = part * ranks.size();
  const Wire wire               = report().wire;
  const std::vector<float> read = weights_in_products(w, wire);
  std::vector<Whole> layers;
  std::vector<Table> h(kLayers + 1, Table(all, kModel)), dh = h;
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto rows = [&](int64_t which) {
      return View<const float, 2>(&read[static_cast<size_t>((l * kHidden * 2 + which) * kModel)],
                                  {kHidden, kModel}, {kUnit, 1});
    };
    layers.push_back({.w1 = rows(0), .w2 = rows(1), .tokens = all, .experts = 1, .hidden = kHidden});
  }
  for (int64_t t = 0; t < all; ++t)
    for (int64_t d = 0; d < kModel; ++d) h[0](t, d).value = ranks[static_cast<int>(t / part)].x(t % part, d);
  for (size_t l = 0; l < kLayers; ++l) layers[l].forward(h[l], h[l + 1]);
  RoundedSum squares;
  for (int64_t t = 0; t < all; ++t)
    for (int64_t d = 0; d < kModel; ++d) {
      RoundedSum difference;
      difference.add(h[kLayers](t, d));
      difference.add({.value = -ranks[static_cast<int>(t / part)].target(t % part, d)});
      dh[kLayers](t, d) = difference.result();
      squares.add(mlp::squared(dh[kLayers](t, d)), {.value = 0.5});
    }
  for (size_t l = kLayers; l-- > 0;) layers[l].backward(dh[l + 1], dh[l]);

  // What a message in E5M2 may be off by where its codes are subnormal, of each layer: no product in a sum
  // over tokens is larger than that of the largest factors.
  std::vector<double> subnormal(kLayers);
  if (wire == Wire::fp8)
    for (size_t l = 0; l < kLayers; ++l) {
      const double z        = largest(layers[l].z, all, kHidden);
      const double gradient = static_cast<double>(all) *
                              std::max(largest(layers[l].dz, all, kHidden) * largest(h[l], all, kModel),
                                       z * z * largest(dh[l + 1], all, kModel));
      subnormal[l] = 0x1p-17 / 57344 * gradient;
    }

  const auto gradient = [&](size_t l, int64_t unit, int64_t which, int64_t d) {
    RoundedSum sum;
    for (int r = 0; r < ranks.size(); ++r) {
      RoundedSum of_rank;
      for (int64_t t = r * part; t < (r + 1) * part; ++t)
        if (which == 0)
          of_rank.add(layers[l].dz(t, unit), h[l](t, d));
        else
          of_rank.add(mlp::squared(layers[l].z(t, unit)), dh[l + 1](t, d));
      Rounded share = of_rank.result();
      if (wire == Wire::fp8 && r != rank)
        share.error = std::hypot(share.error, (0x1p-3 * std::abs(share.value) + subnormal[l]) / kRoundOff);
      sum.add(share);
    }
    return sum.result();
  };
  const auto updated = [&](int64_t l, int64_t unit, int64_t which, int64_t d) {
    const int64_t of = rank * kShard + unit;
    return adamw::Updated(kStep, w(l, of, which, d), m(l, of, which, d), v(l, of, which, d),
                          gradient(static_cast<size_t>(l), of, which, d));
  };
  checker.values("loss", loss, [&](int64_t) { return in_fp32(squares.result()); });
  checker.values("new_w", new_w, [&](auto... at) { return in_fp32(updated(at...).w); });
  checker.values("new_m", new_m, [&](auto... at) { return in_fp32(updated(at...).m); });
  checker.values("new_v", new_v, [&](auto... at) { return in_fp32(updated(at...).v); });
}

}  // namespace fathom::lab::distributed_training
