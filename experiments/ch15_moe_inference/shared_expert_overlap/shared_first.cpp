// Routed experts beside the shared one: T tokens, 4 of 32 experts each and one for all
//
// limit   the tensor cores; few tokens: DRAM bandwidth
// idea    two streams; the shared expert is enqueued first. It needs no sorted rows, so its product has the
// GPU while
//         rows are sorted and gathered
#include "moe_layer.h"
#include "second_stream.h"

namespace fathom::lab::shared_expert_overlap {

Call shared_first(const MoeLayer&, StreamRef) {
  return [second = std::make_shared<const SecondStream>()](const MoeLayer& p, StreamRef stream) {
    second->fork(stream);
    shared_expert(p, second->get());
    routed_experts(p, stream);
    second->join(stream);
  };
}

}  // namespace fathom::lab::shared_expert_overlap
