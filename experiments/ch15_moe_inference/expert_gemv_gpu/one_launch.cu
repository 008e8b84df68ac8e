// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    the engine's op (kernels/moe/experts_gemv_fused.cu): both layers in one launch. CTAs request
// weights
//         of the second layer as soon as they have requested their last ones of the first, and then meet at a
//         grid barrier. Two launches leave memory idle from the last strips of the first to the first sums of
//         the second
#include "cuda/check.h"
#include "cuda/per_device.h"
#include "expert_gemv.h"
#include "kernels/moe/experts_gemv.h"

namespace fathom::lab::expert_gemv_gpu {
namespace {

__device__ uint32_t barrier_word;  // zero when the module is loaded

uint32_t* barrier() {
  static PerDevice<void*> address;
  return static_cast<uint32_t*>(address.get([] {
    void* word = nullptr;
    FATHOM_CUDA(cudaGetSymbolAddress(&word, barrier_word));
    return word;
  }));
}

}  // namespace

void one_launch(const ExpertGemv& p, StreamRef stream) {
  kernels::experts_gemv_fused(p.x, p.experts, p.weights, p.up.packed, p.down.packed, mxfp4::kLimit,
                              mxfp4::kAlpha, p.a, p.slots, barrier(), stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
