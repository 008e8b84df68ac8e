// out(t) = sum_k gate(t, k) relu(x(t) W1[e]) W2[e]      512 tokens on each of 2 ranks, top_k of 16 experts
//
// bytes   512 top_k x 1 KB of tokens and results between ranks, at most; 4.2 MB of weights on each rank
// flops   512 top_k x 262,144 on each rank if the load is even and nothing is dropped
// limit   FMA peak of the core of the rank with the most rows
// idea    as routers are trained: auxiliary loss, noise, and a capacity for what is still uneven
#include "balanced_experts.h"

namespace fathom::lab::router_balance {

Step loss_noise_capacity(const BalancedExperts& p, Context&) {
  return step_by({.noise = 1, .overflow = Overflow::drop, .router_bias = trained_biases(p)});
}

}  // namespace fathom::lab::router_balance
