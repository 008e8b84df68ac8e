// y = W2 relu(W1 x)                      T tokens, 1024 -> 4096 -> 1024, fp32
//
// bytes   half of the weights on each rank; 4 T 1024 of partial sums from each
// flops   2 T 1024 4096 on each rank
// limit   few tokens: the bandwidth of all cores together; many: their FMA units
// idea    W1 by rows, W2 by columns: a rank's half of the hidden activations is all that its half of W2
// reads,
//         so they stay where they are, and one sum joins the ranks (Megatron-LM, arXiv 1909.08053)
#include "mlp.h"

namespace fathom::lab::tensor_parallel_layer {

void column_then_row(const Mlp& p, Context& context) {
  const Rank& me = *context.rank;
  all_reduce_input(p, me);

  const Range hidden = share(kHidden, me.rank());
  products(p.x, p.w1, hidden, {0, kModel}, p.hidden);
  relu(p.hidden, hidden);
  products(p.hidden, p.w2, {0, kModel}, hidden, p.mine);
  put(p.mine, {0, kModel}, outbox(me, me.rank()).y);
  me.barrier();  // every partial sum lies in an outbox
  add_up(me, &Outbox::y, p.y);
}

}  // namespace fathom::lab::tensor_parallel_layer
