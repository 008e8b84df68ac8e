// y = W2 relu(W1 x)                      T tokens, 1024 -> 4096 -> 1024, fp32
//
// bytes   half of the weights on each rank; 4 T (4096 + 1024) of activations gathered, half from each
// flops   2 T 1024 4096 on each rank
// limit   few tokens: the bandwidth of all cores together; many: their FMA units
// idea    each rank computes half of the outputs of each product, and all gather them before the next
#include "mlp.h"

namespace fathom::lab::tensor_parallel_layer {

void gather_each(const Mlp& p, Context& context) {
  const Rank& me = *context.rank;
  all_reduce_input(p, me);

  const Range hidden = share(kHidden, me.rank());
  products(p.x, p.w1, hidden, {0, kModel}, p.hidden);
  relu(p.hidden, hidden);
  put(p.hidden, hidden, outbox(me, me.rank()).hidden);
  me.barrier();  // all hidden activations lie in outboxes
  for (int rank = 0; rank < me.size(); ++rank)
    if (rank != me.rank()) take(outbox(me, rank).hidden, share(kHidden, rank), p.hidden);

  const Range outputs = share(kModel, me.rank());
  products(p.hidden, p.w2, outputs, {0, kHidden}, p.y);
  put(p.y, outputs, outbox(me, me.rank()).y);
  me.barrier();  // all of y lies in outboxes
  for (int rank = 0; rank < me.size(); ++rank)
    if (rank != me.rank()) take(outbox(me, rank).y, share(kModel, rank), p.y);
}

}  // namespace fathom::lab::tensor_parallel_layer
