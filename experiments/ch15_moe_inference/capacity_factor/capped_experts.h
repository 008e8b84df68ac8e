// The problem: one step of an MoE layer on two ranks (../expert_ranks.h), from router logits to outputs.
// Expert e lies on rank e mod 2. The variants differ in what becomes of tokens whose expert is full, and so
// in their answers: each writes which experts it chose, those are checked against its policy, and its output
// is checked for those experts. What the policy loses is a metric.
#pragma once

#include "capacity.h"
#include "experiments/ch15_moe_inference/expert_ranks.h"
#include "lab/metric.h"

namespace fathom::lab::capacity_factor {

constexpr int kRanks = 2;

struct CappedExperts : moe::ExpertRanks {
  View<const float, 2> logits;  // T x kExperts
  View<int32_t, 2> chosen;      // T x top_k; -1: dropped
  View<float, 2> gates;         // T x top_k
  View<int32_t, 1> overflow;    // the variant's Overflow
  int64_t capacity;             // of an expert, from the tokens of one rank

  CappedExperts(const Point& at, Arena& arena, const Rank& rank);

  void check(Checker& checker, const AllRanks<CappedExperts>&) const;
  void metrics(CallMetrics& metrics) const;
};

// The step of a rank by that policy.
void step(const CappedExperts& p, Context& context, Overflow overflow);

void unlimited(const CappedExperts& p, Context& context);
void drop(const CappedExperts& p, Context& context);
void next_choice(const CappedExperts& p, Context& context);

}  // namespace fathom::lab::capacity_factor
