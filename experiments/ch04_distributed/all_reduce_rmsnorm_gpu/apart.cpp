// The engine's two ops, as it has them one after the other: RMSNorm loads what the sum has stored.
//
// bytes   x, written and read once more than in the fused kernel
#include <memory>

#include "kernels/collectives/all_reduce_add.h"
#include "kernels/norm/add_rmsnorm.h"
#include "peer_memory.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

Call apart(const NormedSums& p, Context& context) {
  struct Receiver {
    PeerMemory memory;
    kernels::Peers peers;
  };
  const Rank& me = *context.rank;
  load_add_rmsnorm(p, context);
  kernels::Peers peers{.rank    = me.rank(),
                       .layout  = {.ranks = me.size(), .max_rows = p.in.extent(0) + 1, .width = kWidth},
                       .receive = {}};
  const auto receiver =
      std::make_shared<Receiver>(Receiver{.memory = peer_memory(me, peers.layout.bytes()), .peers = peers});
  for (size_t r = 0; r < receiver->memory.of.size(); ++r) receiver->peers.receive[r] = receiver->memory.of[r];
  return captured(p, context,
                  [receiver, weight = p.weight](View<const float, 2> part, View<float, 2> x, View<bf16, 2> y,
                                                const kernels::CollectiveCall& call, StreamRef stream) {
                    kernels::all_reduce_add(
                        View<const float, 3>(part.data(), {part.extent(0), 1, part.extent(1)}),
                        View<const int32_t, 2>(nullptr, {0, 0}), receiver->peers, call, x, stream);
                    kernels::add_rmsnorm(x, nothing(), weight, kEpsilon, y, stream);
                  });
}

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
