// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 of 32 experts each, MXFP4
//
// bytes   423 MB of weights at width 2880; x, a and slots 33 KB a slot
// flops   6 width^2 a slot
// limit   bf16 peak of the tensor cores. H200: T = 2048 is 408 GFLOP, 0.45 ms at 900 TFLOP/s. Of 256 rows an
//         expert makes 46 items of 128 rows and 256 outputs in the first layer and 24 in the second, for 132
//         multiprocessors
// idea    the engine's kernels, given one expert at a time. Weights are unpacked on their way to the tensor
//         cores, and what becomes of a product happens where it is
#include "kernels/packed_experts_many.h"
#include "sorted_rows.h"

namespace fathom::lab::grouped_experts_gpu {
namespace {

kernels::PackedExperts only(int64_t expert, kernels::PackedExperts w) {
  w.tiles += expert * w.tiles_of_one() * kernels::PackedExperts::kTileBytes;
  w.scales += expert * w.tiles_of_one() * kernels::PackedExperts::kScaleBytes;
  w.bias += expert * w.rows;
  w.experts = 1;
  return w;
}

}  // namespace

void one_launch_each(const GroupedExperts& p, StreamRef stream) {
  if (p.x.extent(0) == 0) return;
  const kernels::ExpertRows all = bring_together(p, stream);
  for (int64_t e = 0; e < kExperts; ++e) {
    const kernels::ExpertRows rows{.first = {all.first.data() + e, {2}}, .slot = all.slot};
    kernels::experts_up_many(p.sorted, rows, only(e, p.up.packed), mxfp4::kLimit, mxfp4::kAlpha, p.a, stream);
    kernels::experts_down_many(p.a, rows, p.weights, only(e, p.down.packed), p.slots, stream);
  }
}

}  // namespace fathom::lab::grouped_experts_gpu
