// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    the engine's op (kernels/packed_experts_few.cu). Weights lie as fragments of the tensor cores, and
//         these multiply 8 rows as fast as one: nothing is unpacked twice, and no lane adds. The second
//         layer's first weights are under way while the first layer ends
#include "expert_gemv.h"
#include "kernels/packed_experts.h"

namespace fathom::lab::expert_gemv_gpu {

void tensor_cores(const ExpertGemv& p, StreamRef stream) {
  kernels::experts_up_few(p.x, p.experts, p.up.packed, mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
  kernels::experts_down_few(p.a, p.experts, p.weights, p.down.packed, p.slots, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
