// out(t) = sum_e g(t, e) relu(x(t) W1[e]) W2[e]         T x 256, 16 experts, fp32; g is 0 except for the 2
//                                                       experts of the router
//
// bytes   8.4 MB of weights, once; T rows of 1 KiB for each expert, in L2
// flops   T * 16 * 262,144, eight times the least
// limit   FMA peak
// idea    none yet: every expert on every token, a large product for each expert. No gather, no scatter, a
//         mask at the end
#include "experiments/ch15_moe_inference/expert_steps.h"
#include "variants.h"

namespace fathom::lab::sparse_activation_cpu {

void dense(const ExpertLayer& p, Context&) {
  const int64_t tokens = p.x.extent(0);
  std::fill_n(p.out.data(), p.out.size(), 0.0f);
  for (int64_t e = 0; e < moe::kExperts; ++e) {
    moe::run_expert(p, e, tokens, p.x.data(), p.hidden.data(), p.result.data());
    for (int64_t t = 0; t < tokens; ++t) {
      float weight = 0;
      for (int64_t k = 0; k < moe::kTopK; ++k)
        if (p.expert(t, k) == e) weight = p.gate(t, k);
      if (weight != 0) moe::accumulate(&p.out(t, 0), weight, &p.result(t, 0));
    }
  }
}

}  // namespace fathom::lab::sparse_activation_cpu
