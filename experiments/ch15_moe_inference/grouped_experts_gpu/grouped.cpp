// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 of 32 experts each, MXFP4
//
// bytes   423 MB of weights at width 2880; x, a and slots 33 KB a slot
// flops   6 width^2 a slot
// limit   bf16 peak of the tensor cores. H200: T = 2048 is 408 GFLOP, 0.45 ms at 900 TFLOP/s
// idea    the engine's ops (kernels/packed_experts_many.cu): one launch a layer has items of 128 rows and 256
//         outputs of all experts, some 1,800 in the first layer and 960 in the second, for as many blocks as
//         there are multiprocessors. A favourite expert has more items, and nobody waits for it
#include "kernels/packed_experts_many.h"
#include "sorted_rows.h"

namespace fathom::lab::grouped_experts_gpu {

void grouped(const GroupedExperts& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows rows = bring_together(p, stream);
  kernels::experts_up_many(p.sorted, rows, p.up.packed, mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
  kernels::experts_down_many(p.a, rows, p.weights, p.down.packed, p.slots, stream);
}

}  // namespace fathom::lab::grouped_experts_gpu
