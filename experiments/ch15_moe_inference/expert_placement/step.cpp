// A step of the layer by a given placement.
#include <algorithm>

#include "placed_experts.h"

namespace fathom::lab::expert_placement {

Step step_by(const engine::ExpertPlacement& placement) {
  size_t most = 0;
  for (const auto& of_rank : placement) most = std::max(most, of_rank.size());
  return [ranks_of = engine::ranks_of_experts(placement, moe::kExperts), most](const PlacedExperts& p,
                                                                               Context& context) {
    moe::compute_slots(p, *context.rank, p.expert.data(), ranks_of);
    moe::combine(p, p.expert.data(), p.gate.data(), moe::outbox(*context.rank, context.rank->rank()).results);
    p.held(0) = static_cast<int64_t>(most);
  };
}

}  // namespace fathom::lab::expert_placement
