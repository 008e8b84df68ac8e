// out = sum_k g(k) (W2[e] swiglu(W1[e] x + b1[e]) + b2[e]),  e = expert(k)      4 experts, MXFP4
//
// bytes   6.4 width^2 of weights; here another 96 width^2 written and read as fp32
// flops   24 width^2
// limit   memory bandwidth
// idea    none yet: a matrix is dequantized to fp32 in memory, then multiplied
#include "expert_steps.h"

namespace fathom::lab::expert_gemv_cpu {

void dequantized(const ExpertGemv& p, Context&) {
  run_experts(p, [&](const kernels::Mxfp4Matrices& w, int64_t expert, const float* in, float* products) {
    const int64_t outputs = w.blocks.extent(1);
    for (int64_t n = 0; n < outputs; ++n) dequantize_row(w, expert, n, &p.matrix(n, 0));
    for (int64_t n = 0; n < outputs; ++n) products[n] = dot(in, &p.matrix(n, 0), p.width());
  });
}

}  // namespace fathom::lab::expert_gemv_cpu
