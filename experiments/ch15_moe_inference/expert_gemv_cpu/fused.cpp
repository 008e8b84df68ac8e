// out = sum_k g(k) (W2[e] swiglu(W1[e] x + b1[e]) + b2[e]),  e = expert(k)      4 experts, MXFP4
//
// bytes   6.4 width^2 of weights
// flops   24 width^2, divided by the threads
// limit   memory bandwidth
// idea    the engine's op, kernels/moe/experts_cpu.cpp: codes become numbers by a table look-up in registers,
//         a vector at a time, and are multiplied there; activations are permuted to the order of the look-up
#include "core/thread_pool.h"
#include "expert_gemv.h"

namespace fathom::lab::expert_gemv_cpu {

void fused(const ExpertGemv& p, Context& context) {
  std::fill_n(p.out.data(), p.width(), 0.0f);  // the op adds
  auto* scratch = reinterpret_cast<std::byte*>(p.scratch.data());
  kernels::experts_cpu(
      p.x, p.experts, p.weights,
      {.mlp1      = p.mlp1,
       .mlp1_bias = p.mlp1_bias,
       .mlp2      = p.mlp2,
       .mlp2_bias = p.mlp2_bias,
       .limit     = kLimit,
       .alpha     = kAlpha},
      p.out, {.threads = &context.pool, .scratch = View<std::byte, 1>(scratch, {p.scratch.bytes()})});
}

}  // namespace fathom::lab::expert_gemv_cpu
