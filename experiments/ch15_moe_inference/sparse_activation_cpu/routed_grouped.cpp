// out(t) = sum_k g(t, k) relu(x(t) W1[e]) W2[e]         T x 256, 2 of 16 experts, fp32
//
// bytes   8.4 MB of weights, once; T * 2 rows of 1 KiB gathered, and as many results
// flops   T * 2 * 262,144
// limit   FMA peak
// idea    the same pairs of token and expert, grouped by expert: weights are read once for all tokens of an
//         expert
#include "experiments/ch15_moe_inference/expert_steps.h"
#include "variants.h"

namespace fathom::lab::sparse_activation_cpu {

void routed_grouped(const ExpertLayer& p, Context&) { moe::run_grouped(p); }

}  // namespace fathom::lab::sparse_activation_cpu
