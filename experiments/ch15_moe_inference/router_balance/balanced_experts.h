// The problem: one step of an MoE layer on two ranks (../expert_ranks.h), from router logits to outputs.
// Expert e lies on rank e mod 2. The variants differ in what keeps popular experts from making one rank late,
// and so in which experts a token gets: each writes its choices, which are checked against its policy, and
// its output is checked for those experts.
#pragma once

#include <functional>

#include "balance.h"
#include "experiments/ch15_moe_inference/capacity_factor/capacity.h"
#include "experiments/ch15_moe_inference/expert_ranks.h"
#include "lab/metric.h"

namespace fathom::lab::router_balance {

using capacity_factor::Overflow;

constexpr int kRanks             = 2;
constexpr double kCapacityFactor = 1.25;

// score = logit + noise + router bias. A token takes the experts with its top_k largest score + selection
// bias, and weighs them by a softmax over their scores; the selection bias only chooses.
struct Policy {
  float noise       = 0;  // standard deviation: 0 or 1, so that a score is rounded in one way only
  Overflow overflow = Overflow::none;
  std::vector<float> router_bias    = std::vector<float>(moe::kExperts);
  std::vector<float> selection_bias = std::vector<float>(moe::kExperts);
};

struct BalancedExperts : moe::ExpertRanks {
  View<const float, 2> logits, noise;          // T x kExperts
  View<int32_t, 2> chosen;                     // T x top_k; -1: dropped
  View<float, 2> gates;                        // T x top_k
  View<float, 2> scores, selection;            // workspace, T x kExperts
  View<float, 1> router_bias, selection_bias;  // the variant's policy
  View<float, 1> noise_scale;
  View<int32_t, 1> overflow;
  int64_t capacity;  // of an expert, from the tokens of one rank

  BalancedExperts(const Point& at, Arena& arena, const Rank& rank);

  void check(Checker& checker, const AllRanks<BalancedExperts>&) const;
  void metrics(CallMetrics& metrics) const;
};

using Step = std::function<void(const BalancedExperts&, Context&)>;
// The step of a rank by that policy.
Step step_by(Policy policy);

// The problem's own kind of logits, in steps that no timed step repeats; the same on all ranks.
std::vector<float> trained_biases(const BalancedExperts& p);
std::vector<float> adapted_biases(const BalancedExperts& p);

Step unbalanced(const BalancedExperts& p, Context& context);
Step gating_noise(const BalancedExperts& p, Context& context);
Step capacity(const BalancedExperts& p, Context& context);
Step auxiliary_loss(const BalancedExperts& p, Context& context);
Step loss_noise_capacity(const BalancedExperts& p, Context& context);
Step selection_bias(const BalancedExperts& p, Context& context);

}  // namespace fathom::lab::router_balance
