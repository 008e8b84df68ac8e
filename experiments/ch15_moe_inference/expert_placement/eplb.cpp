// out(t) = relu(x(t) W1[e]) W2[e]         T tokens on each of 2 ranks, 1 of 16 experts, fp32
//
// bytes   T x 1 KB of tokens from each rank to the other and back, at most; 4.2 MB of weights on each rank
// flops   T x 262,144 on each rank if the load is even
// limit   FMA peak of the core of the rank with the most rows
// idea    EPLB without spare replicas: 8 experts on each rank, the heaviest first onto the lighter rank, by
//         the load of an earlier step
#include "placed_experts.h"

namespace fathom::lab::expert_placement {

Step eplb(const PlacedExperts& p, Context& context) { return step_by_plan(p, context, moe::kExperts); }

}  // namespace fathom::lab::expert_placement
