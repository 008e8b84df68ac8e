// The receive buffers of all ranks, of which each makes one.
#pragma once

#include <memory>

#include "all_reduce.h"
#include "kernels/collectives/all_reduce_add.h"

namespace fathom::lab::all_reduce_gpu {

// The engine's op by one of its protocols.
Call all_reduce_by(kernels::AllReduceProtocol protocol, const Sums& p, Context& context);

}  // namespace fathom::lab::all_reduce_gpu
