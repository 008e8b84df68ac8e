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
  // Experts in the memory of the fullest rank, and those copied to get there from round_robin.
  View<int64_t, 1> held, copied;

  PlacedExperts(const Point& at, Arena& arena, const Rank& rank)
      : ZipfTokens(rank, arena, at["tokens"], 1, at.real("slope")),
        held(arena.workspace<int64_t>({1})),
        copied(arena.workspace<int64_t>({1})) {}
  void metrics(CallMetrics& metrics) const {
    metrics["rank_imbalance"] = {rank_imbalance(), "lower"};
    metrics["experts_held"]   = {static_cast<double>(held(0)), "lower"};
    metrics["experts_copied"] = {static_cast<double>(copied(0)), "lower"};
  }
};

using Step = std::function<void(const PlacedExperts&, Context&)>;
Step step_by(const engine::ExpertPlacement& placement);
// A step by the placement that a planner makes of round_robin's, with so many replicas altogether, for the
// load of the step that the inputs describe. In prepare() that is another step than those that are timed.
Step step_by_plan(const PlacedExperts& p, Context& context, int replicas);

Step round_robin(const PlacedExperts& p, Context& context);
Step eplb(const PlacedExperts& p, Context& context);
Step eplb_replicas(const PlacedExperts& p, Context& context);

}  // namespace fathom::lab::expert_placement
