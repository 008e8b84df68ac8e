#include "train/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fathom::train {
namespace {

TEST(AdamW, TakesTheStepsOfThePaper) {
  ThreadPool threads(2);
  const std::vector<TensorPlace> places{
      {.name = "matrix", .shape = {2, 2}, .offset = 0, .size = 4, .matrix = true},
      {.name = "bias", .shape = {3}, .offset = 4, .size = 3}};
  std::vector<float> weights{1, -2, 3, 0.5f, 1, 2, 3};
  std::vector<double> w(weights.begin(), weights.end()), m(7), v(7);
  AdamW optimizer(7, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1});
  for (int step = 1; step <= 5; ++step) {
    std::vector<float> gradients;
    for (int i = 0; i < 7; ++i) gradients.push_back(static_cast<float>(std::sin(step * 7 + i)));
    optimizer.step(weights, gradients, places, 0.01, 0.5, threads);
    for (size_t i = 0; i < 7; ++i) {
      const double g = 0.5 * gradients[i];
      m[i] = 0.9 * m[i] + 0.1 * g, v[i] = 0.99 * v[i] + 0.01 * g * g;
      const double of_m = m[i] / (1 - std::pow(0.9, step)), of_v = v[i] / (1 - std::pow(0.99, step));
      w[i] -= 0.01 * (of_m / (std::sqrt(of_v) + 1e-6) + (i < 4 ? 0.1 * w[i] : 0));
      EXPECT_NEAR(weights[i], w[i], 1e-5) << "step " << step << ", number " << i;
    }
  }
}

TEST(AdamW, NormIsOfAllGradients) {
  EXPECT_DOUBLE_EQ(global_norm(std::vector<float>{3, 0, -4}), 5);
  EXPECT_DOUBLE_EQ(global_norm({}), 0);
}

}  // namespace
}  // namespace fathom::train
