// Routed experts beside the shared one: T tokens, 4 of 32 experts each and one for all
//
// limit   the tensor cores; few tokens: DRAM bandwidth
// idea    two streams; the routed experts' kernels are enqueued first
#include "moe_layer.h"
#include "second_stream.h"

namespace fathom::lab::shared_expert_overlap {

Call routed_first(const MoeLayer&, StreamRef) {
  return [second = std::make_shared<const SecondStream>()](const MoeLayer& p, StreamRef stream) {
    second->fork(stream);
    routed_experts(p, stream);
    shared_expert(p, second->get());
    second->join(stream);
  };
}

}  // namespace fathom::lab::shared_expert_overlap
