// The op whose data say that they are here: one trip over the link.
#include "receive_buffers.h"

namespace fathom::lab::expert_dispatch_gpu {

Call low_latency(const Dispatch& p, Context& context) {
  return all_to_all_by(kernels::AllToAllProtocol::low_latency, p, context);
}

}  // namespace fathom::lab::expert_dispatch_gpu
