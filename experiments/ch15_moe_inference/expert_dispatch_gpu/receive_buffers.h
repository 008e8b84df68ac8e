// The receive buffers of all ranks, of which each makes one.
#pragma once

#include "exchange.h"

namespace fathom::lab::expert_dispatch_gpu {

// The op by one of its protocols.
Call all_to_all_by(kernels::AllToAllProtocol protocol, const Dispatch& p, Context& context);

}  // namespace fathom::lab::expert_dispatch_gpu
