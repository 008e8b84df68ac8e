// out(t) = sum_k g(t, k) relu(x(t) W1[e]) W2[e]         T x 256, 2 of 16 experts, fp32
//
// bytes   8.4 MB of weights, once; T * 2 rows of 1 KiB gathered, and as many results
// flops   T * 2 * 262,144
// limit   FMA peak. Zen 3 at 3.4 GHz: T = 512 is 268 MFLOP, 2.5 ms
// idea    sort the pairs of token and expert by expert, gather the rows of each expert, multiply matrices,
//         combine results by token
#include "experiments/ch15_moe_inference/expert_steps.h"
#include "variants.h"

namespace fathom::lab::grouped_experts_cpu {

void grouped(const ExpertLayer& p, Context&) { moe::run_grouped(p); }

}  // namespace fathom::lab::grouped_experts_cpu
