// y = W2 relu(W1 x)                      T tokens, 1024 -> 4096 -> 1024, fp32
//
// bytes   all weights, 33.6 MB, by one rank; 4 T 1024 as messages, twice
// flops   4 T 1024 4096, by one rank
// limit   few tokens: one core's bandwidth; many: one core's FMA units
// idea    baseline: rank 0 computes the layer and tells the others, which wait
#include "mlp.h"

namespace fathom::lab::tensor_parallel_layer {

void one_rank(const Mlp& p, Context& context) {
  const Rank& me = *context.rank;
  all_reduce_input(p, me);
  if (me.rank() == 0) {
    products(p.x, p.w1, {0, kHidden}, {0, kModel}, p.hidden);
    relu(p.hidden, {0, kHidden});
    products(p.hidden, p.w2, {0, kModel}, {0, kHidden}, p.y);
    put(p.y, {0, kModel}, outbox(me, 0).y);
  }
  me.barrier();  // y lies in the outbox of rank 0
  if (me.rank() != 0) take(outbox(me, 0).y, {0, kModel}, p.y);
}

}  // namespace fathom::lab::tensor_parallel_layer
