// One loop for all formats and all loss scales.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/dtype.h"
#include "training.h"

namespace fathom::lab::loss_scaling {
namespace {

template <Format kFormat>
float rounded(float x) {
  if constexpr (kFormat == Format::fp16) return static_cast<float>(fathom::fp16(x));
  if constexpr (kFormat == Format::bf16) return static_cast<float>(fathom::bf16(x));
  return x;
}

struct Weights {
  std::array<float, kHidden * kIn> w1;
  std::array<float, kHidden> w2;
};

template <class F>
void for_each_weight(Weights& a, const Weights& b, F f) {
  for (size_t i = 0; i < a.w1.size(); ++i) f(a.w1[i], b.w1[i]);
  for (size_t k = 0; k < a.w2.size(); ++k) f(a.w2[k], b.w2[k]);
}

template <Format kFormat>
class Step {
 public:
  double squares  = 0;  // of y - target
  int64_t flushed = 0, gradients = 0;
  bool finite      = true;
  Weights gradient = {};

  // Adds what tokens [first, first + kBatch) say, with gradients times `scale`.
  Step(const Training& p, const Weights& master, int64_t first, float scale) {
    Weights w;  // as products read them
    for_each_weight(w, master, [](float& to, float from) { to = rounded<kFormat>(from); });
    for (int64_t t = first; t < first + kBatch; ++t) add_token(p, w, t, scale);
    for_each_weight(gradient, gradient, [&](float& g, float) {
      g = rounded<kFormat>(g);
      finite &= std::isfinite(g);
    });
  }

 private:
  void add_token(const Training& p, const Weights& w, int64_t t, float scale) {
    std::array<float, kIn> x;
    std::array<float, kHidden> h;
    for (size_t i = 0; i < kIn; ++i) x[i] = rounded<kFormat>(p.x(t, static_cast<int64_t>(i)));
    float y = 0;
    for (size_t k = 0; k < kHidden; ++k) {
      float z = 0;
      for (size_t i = 0; i < kIn; ++i) z += w.w1[k * kIn + i] * x[i];
      h[k] = rounded<kFormat>(std::max(z, 0.0f));
      y += w.w2[k] * h[k];
    }
    const float difference = y - p.target(t);  // the loss is computed in fp32
    squares += static_cast<double>(difference) * difference;
    const float dy = rounded<kFormat>(scale * difference / static_cast<float>(p.step_tokens));
    for (size_t k = 0; k < kHidden; ++k) {
      gradient.w2[k] += dy * h[k];
      if (h[k] == 0) continue;
      const float dz = rounded<kFormat>(dy * w.w2[k]);
      ++gradients;
      flushed += dz == 0 && difference != 0 && w.w2[k] != 0;
      for (size_t i = 0; i < kIn; ++i) gradient.w1[k * kIn + i] += dz * x[i];
    }
  }
};

template <Format kFormat>
void train_in(const Training& p, LossScale policy) {
  Weights w;
  std::copy_n(p.first_w1.data(), w.w1.size(), w.w1.begin());
  std::copy_n(p.first_w2.data(), w.w2.size(), w.w2.begin());
  const int64_t steps = p.steps(), eighth = std::max<int64_t>(1, steps / 8);
  std::array<double, kFigures> figures{};
  float scale = policy.first;
  for (int64_t s = 0, well = 0; s < steps; ++s) {
    const Step<kFormat> step(p, w, s * kBatch, scale);
    const double loss = step.squares / (2 * kBatch);
    if (s < eighth) figures[kFirstLoss] += loss / static_cast<double>(eighth);
    if (s >= steps - eighth) figures[kLastLoss] += loss / static_cast<double>(eighth);
    figures[kFlushed] += static_cast<double>(step.flushed);
    figures[kGradients] += static_cast<double>(step.gradients);
    if (!step.finite && policy.growth_interval > 0) {
      ++figures[kSkipped];
      scale /= 2;
      well = 0;
      continue;
    }
    // Of all ranks, and without the scale, in fp32.
    const float factor = kLearningRate * static_cast<float>(p.step_tokens / kBatch) / scale;
    for_each_weight(w, step.gradient, [&](float& to, float g) { to -= factor * g; });
    if (policy.growth_interval > 0 && ++well == policy.growth_interval) {
      scale *= 2;
      well = 0;
    }
  }
  figures[kLossScale] = scale;
  std::copy(w.w1.begin(), w.w1.end(), p.w1.data());
  std::copy(w.w2.begin(), w.w2.end(), p.w2.data());
  std::copy(figures.begin(), figures.end(), p.figures.data());
}

}  // namespace

void train(const Training& p, Format format, LossScale scale) {
  switch (format) {
    case Format::fp32:
      return train_in<Format::fp32>(p, scale);
    case Format::fp16:
      return train_in<Format::fp16>(p, scale);
    case Format::bf16:
      return train_in<Format::bf16>(p, scale);
  }
}

}  // namespace fathom::lab::loss_scaling
