// out = sum_k g(k) (W2[e] swiglu(W1[e] x + b1[e]) + b2[e]),  e = expert(k)      4 experts, MXFP4
//
// bytes   6.4 width^2 of weights
// flops   24 width^2
// limit   memory bandwidth
// idea    baseline: the plain loop over packed weights. A row is dequantized into a buffer, and multiplied
//         while that is in L1
#include "expert_steps.h"

namespace fathom::lab::expert_gemv_cpu {

void row_at_a_time(const ExpertGemv& p, Context&) {
  run_experts(p, [&](const kernels::Mxfp4Matrices& w, int64_t expert, const float* in, float* products) {
    float* row = p.row.data();
    for (int64_t n = 0; n < w.blocks.extent(1); ++n) {
      dequantize_row(w, expert, n, row);
      products[n] = dot(in, row, p.width());
    }
  });
}

}  // namespace fathom::lab::expert_gemv_cpu
