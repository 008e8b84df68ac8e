// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    the engine's op (kernels/moe/experts_gemv.cu). It is epilogue_warp with programmatic dependent
//         launch: the second layer's first weights are loaded while the first layer ends. Strips have 32 rows
//         where there are several tokens, biases are prefetched, and divisions are multiplications
#include "expert_gemv.h"
#include "kernels/moe/experts_gemv.h"

namespace fathom::lab::expert_gemv_gpu {

void tensor_cores(const ExpertGemv& p, StreamRef stream) {
  kernels::experts_up_gemv(p.x, p.experts, p.up.packed, mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
  kernels::experts_down_gemv(p.a, p.experts, p.weights, p.down.packed, p.slots, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
