// The problem: one step of an MoE layer whose experts lie on two ranks (../expert_ranks.h), top-1. The
// variants differ in the placement of experts alone; the step ends with the rank that has the most rows.
#pragma once

#include <functional>

#include "engine/expert_placement.h"
#include "experiments/ch15_moe_inference/expert_ranks.h"
#include "lab/metric.h"

namespace fathom::lab::expert_placement {

constexpr int kRanks = 2;

struct PlacedExperts : moe::ZipfTokens {
  View<int64_t, 1> held;  // experts in the memory of the fullest rank

  PlacedExperts(const Point& at, Arena& arena, const Rank& rank)
      : ZipfTokens(rank, arena, at["tokens"], 1, at.real("slope")), held(arena.workspace<int64_t>({1})) {}
  void metrics(CallMetrics& metrics) const {
    metrics["rank_imbalance"] = {rank_imbalance(), "lower"};
    metrics["experts_held"]   = {static_cast<double>(held(0)), "lower"};
  }
};

using Step = std::function<void(const PlacedExperts&, Context&)>;
// A step by that placement. A variant plans in prepare(), from the load of another step than those that are
// timed.
Step step_by(const engine::ExpertPlacement& placement);

Step round_robin(const PlacedExperts& p, Context& context);
Step eplb(const PlacedExperts& p, Context& context);
Step eplb_replicas(const PlacedExperts& p, Context& context);

}  // namespace fathom::lab::expert_placement
