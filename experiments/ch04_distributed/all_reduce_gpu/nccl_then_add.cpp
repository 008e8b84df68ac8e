// NCCL sums into a buffer of its own, and a kernel adds that to x: two launches a sum, with NCCL's own choice
// of algorithm and protocol.
//
// bytes   of x, read and written once more than in the fused kernels; the sum, written and read
#include <memory>

#include "cuda/nccl.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_gpu {

Call nccl_then_add(const Sums& p, Context& context) {
  const Rank& me = *context.rank;
  if (!nccl()) throw Unavailable("needs_library", why_no_nccl());
  // Rank 0 makes the id that all join by.
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  if (me.rank() == 0) *id = make_nccl_id();
  me.barrier();
  const auto communicator = std::make_shared<NcclCommunicator>(*id, me.rank(), me.size());
  return captured(p, context,
                  [communicator, scratch = p.scratch.data()](View<const float, 2> part, View<float, 2> x, int,
                                                             StreamRef stream) {
                    if (part.size() == 0) return;
                    const View<float, 2> sum(scratch, {x.extent(0), x.extent(1)});
                    communicator->all_reduce(part.data(), sum.data(), part.size(), stream);
                    add(View<const float, 2>(sum), x, stream);
                  });
}

}  // namespace fathom::lab::all_reduce_gpu
