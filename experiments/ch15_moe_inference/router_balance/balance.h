// Two ways to even out a router's choices by a number for each expert, which is added to its logits.
//
//   auxiliary loss   L = E sum_e f_e P_e, where f_e is the share of slots that expert e gets and P_e the mean
//   of
//                    its softmax over tokens (Switch Transformer: Fedus et al., 2021). f is constant in the
//                    gradient, as it is a count. Here the numbers are the router's biases and all that is
//                    trained, by that loss alone.
//   selection bias   after each step minus u where an expert had more than the mean, plus u where it had less
//                    (DeepSeek-V3's balancing without an auxiliary loss, 2024): used to choose, not to weigh.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/view.h"

namespace fathom::lab::router_balance {

// [expert]: share of all slots where each token takes its top_k largest of logits + bias.
std::vector<double> slot_shares(View<const float, 2> logits, std::span<const float> bias, int64_t top_k);

// E sum_e shares_e P_e of softmax(logits + bias); 1 where both are even.
double load_balancing_loss(View<const float, 2> logits, std::span<const float> bias,
                           std::span<const double> shares);
// Its gradient by the biases.
std::vector<double> load_balancing_gradient(View<const float, 2> logits, std::span<const float> bias,
                                            std::span<const double> shares);

// Fills the logits [tokens, experts] of a step, which differ by its number.
using StepLogits = std::function<void(float* logits, int64_t elements, uint64_t step)>;

struct Training {
  int64_t tokens, experts, top_k;
  int steps;
};

// Biases after so many steps of gradient descent, each on its own tokens.
std::vector<float> train_biases(const Training& training, const StepLogits& logits);
// Selection biases after so many steps.
std::vector<float> adapt_selection_biases(const Training& training, const StepLogits& logits);

}  // namespace fathom::lab::router_balance
