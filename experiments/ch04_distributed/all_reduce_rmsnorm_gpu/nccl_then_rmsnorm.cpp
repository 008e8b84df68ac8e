// NCCL sums into a buffer of its own, with its own choice of algorithm and protocol. The engine's RMSNorm
// adds that to x first, as it adds the outputs of experts: two launches a sum, here too.
//
// bytes   the sum, written and read once more than in the fused kernel
#include <memory>

#include "cuda/nccl.h"
#include "kernels/norm/add_rmsnorm.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

Call nccl_then_rmsnorm(const NormedSums& p, Context& context) {
  const Rank& me = *context.rank;
  if (!nccl()) throw Unavailable("needs_library", why_no_nccl());
  load_add_rmsnorm(p, context);
  // Rank 0 makes the id that all join by.
  auto* id = reinterpret_cast<NcclId*>(me.shared().data());
  if (me.rank() == 0) *id = make_nccl_id();
  me.barrier();
  const auto communicator = std::make_shared<NcclCommunicator>(*id, me.rank(), me.size());
  return captured(p, context,
                  [communicator, weight = p.weight, scratch = p.scratch.data()](
                      View<const float, 2> part, View<float, 2> x, View<bf16, 2> y,
                      const kernels::CollectiveCall&, StreamRef stream) {
                    if (part.size() == 0) return;
                    communicator->all_reduce(part.data(), scratch, part.size(), stream);
                    const View<const float, 3> sum(scratch, {x.extent(0), 1, x.extent(1)});
                    kernels::add_rmsnorm(x, sum, weight, kEpsilon, y, stream);
                  });
}

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
