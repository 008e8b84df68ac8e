// Epilogues of the library's products of n rows of one expert.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::lab::grouped_experts_gpu {

// a = gated units. products [n, 2 width] in the checkpoint's order; bias [2 width] in packed order; a [n,
// width].
void gate(View<const float, 2> products, const float* bias, View<bf16, 2> a, StreamRef stream);

// slots(slot(i)) = weights(slot(i)) (products(i) + bias). products [n, width]; bias [width]; slot [n].
void weigh(View<const float, 2> products, const float* bias, View<const int32_t, 1> slot,
           View<const float, 2> weights, View<float, 2> slots, StreamRef stream);

}  // namespace fathom::lab::grouped_experts_gpu
