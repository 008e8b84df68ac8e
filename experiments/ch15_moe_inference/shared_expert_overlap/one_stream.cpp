// Routed experts, then the shared one: T tokens, 4 of 32 experts each and one for all
//
// limit   the tensor cores; few tokens: DRAM bandwidth
// idea    baseline: one after the other, in one stream
#include "moe_layer.h"

namespace fathom::lab::shared_expert_overlap {

void one_stream(const MoeLayer& p, StreamRef stream) {
  routed_experts(p, stream);
  shared_expert(p, stream);
}

}  // namespace fathom::lab::shared_expert_overlap
