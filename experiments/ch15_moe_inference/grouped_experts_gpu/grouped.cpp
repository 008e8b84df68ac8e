// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 of 32 experts each, MXFP4
//
// bytes   423 MB of weights at width 2880; x, a and slots 33 KB a slot
// flops   6 width^2 a slot
// limit   bf16 peak of the tensor cores. H200: T = 2048 is 408 GFLOP, 0.45 ms at 900 TFLOP/s
// idea    the engine's ops (kernels/moe/experts_grouped_gemm.cu): one launch a layer has tiles of 128 rows
//         and 256 outputs of all experts, some 1,800 in the first layer and 960 in the second, for a
//         persistent grid of a CTA for each SM. An expert with more rows has more tiles, and no other expert
//         waits for it
#include "kernels/moe/experts_grouped_gemm.h"
#include "sorted_rows.h"

namespace fathom::lab::grouped_experts_gpu {

void grouped(const GroupedExperts& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows rows = sort_and_gather(p, stream);
  kernels::experts_up_grouped_gemm(p.sorted, rows, p.up.packed, mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
  kernels::experts_down_grouped_gemm(p.a, rows, p.weights, p.down.packed, p.slots, stream);
}

}  // namespace fathom::lab::grouped_experts_gpu
