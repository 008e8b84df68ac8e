// The gradient of a mean over millions of tokens is small, and fp16 has no numbers below 2^-24. A factor
// moves gradients to where it has some.
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "lab/metric.h"
#include "training.h"

namespace fathom::lab::loss_scaling {
namespace {

constexpr double kOfW1 = 0.35, kOfW2 = 0.25;  // deviations: about sqrt(2 / kIn), and sqrt(2 / kHidden)

void fill_weights(float* w1, float* w2, uint64_t seed) {
  fill_normal(w1, kHidden * kIn, seed, 0, kOfW1);
  fill_normal(w2, kHidden, seed + 1, 0, kOfW2);
}

// What the network of another seed says of the tokens.
void fill_targets(float* to, const float* x, int64_t tokens) {
  std::array<float, kHidden * kIn> w1;
  std::array<float, kHidden> w2;
  fill_weights(w1.data(), w2.data(), 20181);
  for (int64_t t = 0; t < tokens; ++t) {
    double y = 0;
    for (size_t k = 0; k < kHidden; ++k) {
      double z = 0;
      for (size_t i = 0; i < kIn; ++i)
        z += static_cast<double>(w1[k * kIn + i]) * x[t * kIn + static_cast<int64_t>(i)];
      y += std::max(z, 0.0) * static_cast<double>(w2[k]);
    }
    to[t] = static_cast<float>(y);
  }
}

// Training in double, with matrices in place of tokens: all hidden units of a step, then all gradients.
struct Reference {
  std::vector<double> w1, w2, moved;  // moved: how far each weight went

  explicit Reference(const Training& p) {
    for (int64_t k = 0; k < kHidden; ++k) {
      for (int64_t i = 0; i < kIn; ++i) w1.push_back(p.first_w1(k, i));
      w2.push_back(p.first_w2(k));
    }
    const std::vector<double> first1 = w1, first2 = w2;
    for (int64_t s = 0; s < p.steps(); ++s) step(p, s * kBatch);
    for (size_t i = 0; i < w1.size(); ++i) moved.push_back(std::abs(w1[i] - first1[i]));
    for (size_t i = 0; i < w2.size(); ++i) moved.push_back(std::abs(w2[i] - first2[i]));
  }

  double largest_move() const { return moved.empty() ? 0 : *std::max_element(moved.begin(), moved.end()); }

 private:
  void step(const Training& p, int64_t first) {
    std::vector<double> z(kBatch * kHidden), difference(kBatch);
    for (int64_t t = 0; t < kBatch; ++t) {
      difference[static_cast<size_t>(t)] = -static_cast<double>(p.target(first + t));
      for (int64_t k = 0; k < kHidden; ++k) {
        double& unit = z[static_cast<size_t>(t * kHidden + k)];
        for (int64_t i = 0; i < kIn; ++i)
          unit += w1[static_cast<size_t>(k * kIn + i)] * static_cast<double>(p.x(first + t, i));
        difference[static_cast<size_t>(t)] += std::max(unit, 0.0) * w2[static_cast<size_t>(k)];
      }
    }
    const std::vector<double> before = w2;
    for (int64_t k = 0; k < kHidden; ++k)
      for (int64_t t = 0; t < kBatch; ++t) {
        const double unit = z[static_cast<size_t>(t * kHidden + k)];
        if (unit <= 0) continue;
        const double step = static_cast<double>(kLearningRate) * difference[static_cast<size_t>(t)] / kBatch;
        w2[static_cast<size_t>(k)] -= step * unit;
        for (int64_t i = 0; i < kIn; ++i)
          w1[static_cast<size_t>(k * kIn + i)] -=
              step * before[static_cast<size_t>(k)] * static_cast<double>(p.x(first + t, i));
      }
  }
};

}  // namespace

Training::Training(const Point& at, Arena& arena)
    : x(arena.input<float>({at["steps"] * kBatch, kIn}, Normal{0, 1})),
      target(arena.input<float>(
          {at["steps"] * kBatch},
          generate<float>([this](float* to, int64_t n, uint64_t) { fill_targets(to, x.data(), n); }))),
      first_w1(arena.input<float>({kHidden, kIn}, Normal{0, kOfW1})),
      first_w2(arena.input<float>({kHidden}, Normal{0, kOfW2})),
      w1(arena.output<float>({kHidden, kIn})),
      w2(arena.output<float>({kHidden})),
      figures(arena.workspace<double>({kFigures})),
      step_tokens(static_cast<double>(at["step_tokens"])) {}

Cost Training::cost() const {
  return {.read    = x.bytes() + target.bytes() + first_w1.bytes() + first_w2.bytes(),
          .written = w1.bytes() + w2.bytes(),
          .flops   = static_cast<double>(x.extent(0)) * 6 * (kIn + 1) * kHidden};
}

// u of FP4 is 1/4, so that the tolerance of a Sum of length 1 is its magnitude.
void Training::check(Checker& checker) const {
  const Reference reference(*this);
  const double largest_move = reference.largest_move();
  const auto near           = [&](double value) {
    return Sum{.value = value, .magnitude = largest_move, .length = 1, .accumulate = DType::fp4_e2m1};
  };
  checker.values("w1", w1,
                 [&](int64_t k, int64_t i) { return near(reference.w1[static_cast<size_t>(k * kIn + i)]); });
  checker.values("w2", w2, [&](int64_t k) { return near(reference.w2[static_cast<size_t>(k)]); });
}

void Training::metrics(CallMetrics& metrics) const {
  if (steps() == 0) return;
  metrics["first_loss"] = {figures(kFirstLoss), "lower"};
  metrics["last_loss"]  = {figures(kLastLoss), "lower"};
  if (figures(kGradients) > 0) metrics["flushed_share"] = {figures(kFlushed) / figures(kGradients), "lower"};
  metrics["skipped_steps"] = {figures(kSkipped), "lower"};
  metrics["loss_scale"]    = {figures(kLossScale), "higher"};
}

namespace {

const Experiment<Training> experiment{
    .question =
        "A gradient of a mean over millions of tokens underflows in fp16 (emulated): what does that cost "
        "training, and "
        "what do a static scale, a dynamic scale and bf16 save of it?",
    .limit    = Limit::none,
    .axes     = {{"step_tokens", {1 << 24, 1 << 20}}, {"steps", {512}}},
    .quick    = {{"step_tokens", {1 << 24}}, {"steps", {256}}},
    .check_at = {{"step_tokens", {1 << 20}}, {"steps", {0, 1, 7, 64}}},
    .variants =
        {
            {.id = "fp32", .launch = fp32, .techniques = {}, .idea = "nothing is rounded"},
            {.id         = "fp16",
             .launch     = fp16,
             .techniques = {"mixed_precision"},
             .idea       = "small gradients become multiples of 2^-24, or 0",
             .prediction = predict::ratio(0.6)},
            {.id         = "fp16_static_scale",
             .launch     = fp16_static_scale,
             .techniques = {"mixed_precision", "loss_scaling"},
             .idea       = "the same times 2^16",
             .prediction = predict::ratio(0.6)},
            {.id         = "fp16_dynamic_scale",
             .launch     = fp16_dynamic_scale,
             .techniques = {"mixed_precision", "loss_scaling"},
             .idea       = "a scale that is halved after an overflow and doubled after 32 good steps",
             .prediction = predict::ratio(0.6)},
            {.id         = "bf16",
             .launch     = bf16,
             .techniques = {"mixed_precision"},
             .idea       = "fp32's exponents, 8 bits of precision",
             .prediction = predict::ratio(0.6)},
        },
    .catalog = {"book-020"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::loss_scaling
