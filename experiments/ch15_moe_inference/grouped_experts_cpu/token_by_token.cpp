// out(t) = sum_k g(t, k) relu(x(t) W1[e]) W2[e]         T x 256, 2 of 16 experts, fp32
//
// bytes   0.5 MB of weights for each of T * 2 pairs of token and expert, from L2, L3 or memory
// flops   T * 2 * 262,144
// limit   FMA peak; here the bandwidth of the level that holds 8.4 MB of weights
// idea    none yet: the loop of the formula. For each token, for each of its experts, two vector-matrix
//         products
#include "experiments/ch15_moe_inference/expert_steps.h"
#include "variants.h"

namespace fathom::lab::grouped_experts_cpu {

void token_by_token(const ExpertLayer& p, Context&) {
  for (int64_t t = 0; t < p.x.extent(0); ++t) moe::run_token(p, t);
}

}  // namespace fathom::lab::grouped_experts_cpu
