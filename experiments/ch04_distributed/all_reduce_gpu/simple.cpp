// The engine's op, with a flag for each row behind a fence (Simple).
#include "receive_buffers.h"

namespace fathom::lab::all_reduce_gpu {

Call simple(const Sums& p, Context& context) {
  return all_reduce_by(kernels::AllReduceProtocol::simple, p, context);
}

}  // namespace fathom::lab::all_reduce_gpu
