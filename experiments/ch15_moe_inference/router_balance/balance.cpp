#include "experiments/ch15_moe_inference/router_balance/balance.h"

#include <algorithm>
#include <cmath>

#include "core/expect.h"
#include "experiments/ch15_moe_inference/capacity_factor/capacity.h"

namespace fathom::lab::router_balance {
namespace {

// The gradient of an expert's bias is about its probability times the excess of its share, a few hundredths.
constexpr double kLearningRate  = 1;
constexpr float kSelectionSpeed = 0.02f;  // biases span about 3; DeepSeek-V3 takes 0.001 and many more steps

// softmax(logits(t, .) + bias)
void probabilities(View<const float, 2> logits, std::span<const float> bias, int64_t t,
                   std::vector<double>& p) {
  const auto at = [&](size_t e) { return static_cast<double>(logits(t, static_cast<int64_t>(e))) + bias[e]; };
  double largest = at(0), sum = 0;
  for (size_t e = 1; e < p.size(); ++e) largest = std::max(largest, at(e));
  for (size_t e = 0; e < p.size(); ++e) sum += p[e] = std::exp(at(e) - largest);
  for (double& share : p) share /= sum;
}

template <class Update>
std::vector<float> after_steps(const Training& training, const StepLogits& logits, Update&& update) {
  std::vector<float> bias(static_cast<size_t>(training.experts));
  std::vector<float> of_step(static_cast<size_t>(training.tokens * training.experts));
  for (int step = 0; step < training.steps; ++step) {
    logits(of_step.data(), training.tokens * training.experts, static_cast<uint64_t>(step));
    const View<const float, 2> view(of_step.data(), {training.tokens, training.experts});
    update(view, slot_shares(view, bias, training.top_k), bias);
  }
  return bias;
}

}  // namespace

std::vector<double> slot_shares(View<const float, 2> logits, std::span<const float> bias, int64_t top_k) {
  const int64_t tokens = logits.extent(0), experts = logits.extent(1);
  FATHOM_EXPECT(static_cast<int64_t>(bias.size()) == experts, "a bias for each expert");
  std::vector<float> biased(static_cast<size_t>(tokens * experts));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t e = 0; e < experts; ++e)
      biased[static_cast<size_t>(t * experts + e)] = logits(t, e) + bias[static_cast<size_t>(e)];
  std::vector<int32_t> chosen(static_cast<size_t>(tokens * top_k));
  std::vector<float> gates(chosen.size());
  capacity_factor::route(View<const float, 2>(biased.data(), {tokens, experts}),
                         capacity_factor::Overflow::none, 0, View<int32_t, 2>(chosen.data(), {tokens, top_k}),
                         View<float, 2>(gates.data(), {tokens, top_k}));
  std::vector<double> shares(static_cast<size_t>(experts));
  for (const int32_t e : chosen) shares[static_cast<size_t>(e)] += 1.0 / static_cast<double>(chosen.size());
  return shares;
}

double load_balancing_loss(View<const float, 2> logits, std::span<const float> bias,
                           std::span<const double> shares) {
  std::vector<double> p(bias.size());
  double loss = 0;
  for (int64_t t = 0; t < logits.extent(0); ++t) {
    probabilities(logits, bias, t, p);
    for (size_t e = 0; e < p.size(); ++e) loss += shares[e] * p[e];
  }
  return logits.extent(0) == 0 ? 0
                               : loss * static_cast<double>(p.size()) / static_cast<double>(logits.extent(0));
}

std::vector<double> load_balancing_gradient(View<const float, 2> logits, std::span<const float> bias,
                                            std::span<const double> shares) {
  std::vector<double> p(bias.size()), gradient(bias.size());
  const double scale =
      static_cast<double>(p.size()) / static_cast<double>(std::max<int64_t>(1, logits.extent(0)));
  for (int64_t t = 0; t < logits.extent(0); ++t) {
    probabilities(logits, bias, t, p);
    double mean = 0;  // of the shares, weighted by this token's probabilities
    for (size_t e = 0; e < p.size(); ++e) mean += p[e] * shares[e];
    for (size_t e = 0; e < p.size(); ++e) gradient[e] += scale * p[e] * (shares[e] - mean);
  }
  return gradient;
}

std::vector<float> train_biases(const Training& training, const StepLogits& logits) {
  return after_steps(training, logits, [](auto of_step, const auto& shares, std::vector<float>& bias) {
    const std::vector<double> gradient = load_balancing_gradient(of_step, bias, shares);
    for (size_t e = 0; e < bias.size(); ++e) bias[e] -= static_cast<float>(kLearningRate * gradient[e]);
  });
}

std::vector<float> adapt_selection_biases(const Training& training, const StepLogits& logits) {
  return after_steps(training, logits, [](auto, const auto& shares, std::vector<float>& bias) {
    const double mean = 1 / static_cast<double>(bias.size());
    for (size_t e = 0; e < bias.size(); ++e)
      bias[e] += shares[e] > mean ? -kSelectionSpeed : shares[e] < mean ? kSelectionSpeed : 0;
  });
}

}  // namespace fathom::lab::router_balance
