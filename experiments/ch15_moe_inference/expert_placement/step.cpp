// A step of the layer by a given placement.
#include <algorithm>

#include "placed_experts.h"

namespace fathom::lab::expert_placement {

Step step_by(const engine::ExpertPlacement& placement) {
  size_t most = 0;
  for (const auto& of_rank : placement) most = std::max(most, of_rank.size());
  const auto start  = engine::round_robin_placement(moe::kExperts, static_cast<int>(placement.size()));
  const auto copied = engine::copies_between(start, placement).total;
  return [ranks_of = engine::ranks_of_experts(placement, moe::kExperts), most, copied](const PlacedExperts& p,
                                                                                       Context& context) {
    moe::compute_slots(p, *context.rank, p.expert.data(), ranks_of);
    moe::combine(p, p.expert.data(), p.gate.data(), moe::outbox(*context.rank, context.rank->rank()).results);
    p.held(0)   = static_cast<int64_t>(most);
    p.copied(0) = copied;
  };
}

// The planner weighs a modelled gain against a modelled copy: 3.4 us for a token's expert on a core like
// this, and 5 GB/s for weights. Over a thousand steps even a small gain pays.
Step step_by_plan(const PlacedExperts& p, Context& context, int replicas) {
  const int ranks = context.rank->size();
  engine::ExpertPlanner planner(moe::kExperts, engine::round_robin_placement(moe::kExperts, ranks),
                                {.shape                = {.ranks = ranks, .replicas = replicas},
                                 .ns_of_token          = 3400,
                                 .horizon_observations = 1000,
                                 .expert_bytes         = 2 * moe::kMatrix * int64_t{sizeof(float)},
                                 .copied_bytes_of_a_ns = 5});
  planner.observe(moe::observed_load(p.expert.data(), p.slots(), *context.rank));
  planner.replan();
  return step_by(planner.placement());
}

}  // namespace fathom::lab::expert_placement
