#include "train/adamw.h"

#include <cmath>

#include "core/expect.h"

namespace fathom::train {

AdamW::AdamW(int64_t parameters, const AdamWOptions& options)
    : options_(options), m_(static_cast<size_t>(parameters)), v_(static_cast<size_t>(parameters)) {}

void AdamW::step(std::span<float> weights, std::span<const float> gradients,
                 const std::vector<TensorPlace>& places, double learning_rate, double factor,
                 ThreadPool& threads) {
  FATHOM_EXPECT(weights.size() == m_.size() && gradients.size() == m_.size(),
                "an optimizer steps the parameters that it was made for");
  ++steps_;
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto epsilon = static_cast<float>(options_.epsilon), scale = static_cast<float>(factor);
  const double corrected1 = 1 - std::pow(options_.beta1, steps_),
               corrected2 = 1 - std::pow(options_.beta2, steps_);
  const auto rate         = static_cast<float>(learning_rate / corrected1);
  const auto root         = static_cast<float>(1 / std::sqrt(corrected2));
  for (const TensorPlace& place : places) {
    const auto decay = static_cast<float>(place.matrix ? learning_rate * options_.weight_decay : 0);
    threads.parallel_for(place.size, 1024, [&](int64_t begin, int64_t end) {
      const auto first     = static_cast<size_t>(place.offset + begin);
      float* const w       = weights.data() + first;
      float* const m       = m_.data() + first;
      float* const v       = v_.data() + first;
      const float* const g = gradients.data() + first;
      for (int64_t i = 0; i < end - begin; ++i) {
        const float gradient = scale * g[i];
        m[i]                 = beta1 * m[i] + (1 - beta1) * gradient;
        v[i]                 = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        w[i] -= rate * m[i] / (std::sqrt(v[i]) * root + epsilon) + decay * w[i];
      }
    });
  }
}

double global_norm(std::span<const float> gradients) {
  double squares = 0;
  for (const float g : gradients) squares += static_cast<double>(g) * g;
  return std::sqrt(squares);
}

}  // namespace fathom::train
