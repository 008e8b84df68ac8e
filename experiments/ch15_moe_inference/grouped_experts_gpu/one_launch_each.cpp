// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 of 32 experts each, MXFP4
//
// bytes   423 MB of weights at width 2880; x, a and slots 33 KB a slot
// flops   6 width^2 a slot
// limit   bf16 peak of the tensor cores. H200: T = 2048 is 408 GFLOP, 0.45 ms at 900 TFLOP/s. An expert's 256
//         rows are 46 tiles of 128 rows and 256 outputs in the first layer and 24 in the second, for 132 SMs
// idea    the engine's kernels, called for one expert at a time. Weights are unpacked in registers, and
//         the epilogue is fused
#include "kernels/moe/experts_grouped_gemm.h"
#include "sorted_rows.h"

namespace fathom::lab::grouped_experts_gpu {
namespace {

kernels::PackedExperts one_expert(int64_t expert, kernels::PackedExperts w) {
  w.tiles += expert * w.tiles_of_one() * kernels::PackedExperts::kTileBytes;
  w.scales += expert * w.tiles_of_one() * kernels::PackedExperts::kScaleBytes;
  w.bias += expert * w.rows;
  w.experts = 1;
  return w;
}

}  // namespace

void one_launch_each(const GroupedExperts& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows all = sort_and_gather(p, stream);
  for (int64_t e = 0; e < kExperts; ++e) {
    const kernels::ExpertRows rows{.offsets = {all.offsets.data() + e, {2}}, .sorted_ids = all.sorted_ids};
    kernels::experts_up_grouped_gemm(p.sorted, rows, one_expert(e, p.up.packed), mxfp4::kLimit, mxfp4::kAlpha,
                                     p.a, stream);
    kernels::experts_down_grouped_gemm(p.a, rows, p.weights, one_expert(e, p.down.packed), p.slots, stream);
  }
}

}  // namespace fathom::lab::grouped_experts_gpu
