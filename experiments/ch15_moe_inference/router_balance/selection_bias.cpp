// out(t) = sum_k gate(t, k) relu(x(t) W1[e]) W2[e]      512 tokens on each of 2 ranks, top_k of 16 experts
//
// bytes   512 top_k x 1 KB of tokens and results between ranks, at most; 4.2 MB of weights on each rank
// flops   512 top_k x 262,144 on each rank if the load is even and nothing is dropped
// limit   FMA peak of the core of the rank with the most rows
// idea    balancing without an auxiliary loss (DeepSeek-V3, 2024): a bias that chooses and does not weigh,
//         moved by the sign of what an expert had too much (balance.h)
#include "balanced_experts.h"

namespace fathom::lab::router_balance {

Step selection_bias(const BalancedExperts& p, Context&) {
  return step_by({.selection_bias = adapted_biases(p)});
}

}  // namespace fathom::lab::router_balance
