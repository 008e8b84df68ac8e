// Nothing overlaps: a layer's weights are gathered, then multiplied, on one stream.
#include "forward.h"

namespace fathom::lab::copy_engine_collectives_gpu {

Call nccl_in_turn(const ShardedLayers& p, Context& context) {
  const auto communicator = communicator_of(*context.rank, -1);
  const auto products     = std::make_shared<Products>(p);
  return [=](const ShardedLayers& q, Context& c) {
    for (int64_t l = 0; l < kLayers; ++l) {
      gather_by_nccl(*communicator, q, l, c.stream);
      products->layer(q, l, c.stream);
    }
  };
}

}  // namespace fathom::lab::copy_engine_collectives_gpu
