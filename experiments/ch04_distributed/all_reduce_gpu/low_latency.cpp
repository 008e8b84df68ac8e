// The engine's op, in which a number is its own flag: one trip over the link.
#include "kernels/collectives/all_reduce_add.h"
#include "receive_buffers.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_gpu {

Call low_latency(const Sums& p, Context& context) {
  const Rank& me = *context.rank;
  kernels::Peers peers{.rank    = me.rank(),
                       .layout  = {.ranks = me.size(), .max_rows = p.in.extent(0) + 1, .width = kWidth},
                       .receive = {}};
  const auto buffers = receive_buffers(me, peers.layout.bytes());
  peers.receive      = buffers->of_ranks;
  return captured(
      p, context, [buffers, peers](View<const float, 2> part, View<float, 2> x, int index, StreamRef stream) {
        if (index == 0) count(buffers->pass.view(), stream);
        kernels::all_reduce_add(
            View<const float, 3>(part.data(), {part.extent(0), 1, part.extent(1)}),
            View<const int32_t, 2>(nullptr, {0, 0}), peers,
            {.pass = View<const int32_t, 1>(buffers->pass.view()), .index = index, .count = kSums + 2}, x,
            stream);
      });
}

}  // namespace fathom::lab::all_reduce_gpu
