// The op with a flag for each row behind a fence (Simple).
#include "receive_buffers.h"

namespace fathom::lab::expert_dispatch_gpu {

Call simple(const Dispatch& p, Context& context) {
  return all_to_all_by(kernels::AllToAllProtocol::simple, p, context);
}

}  // namespace fathom::lab::expert_dispatch_gpu
