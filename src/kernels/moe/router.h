// The experts of each token: the top_k largest logits, the lower index first where two are equal. Their
// weights are the softmax over these logits alone.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"

namespace fathom::kernels {

// logits [T, E], no NaN; experts, weights [T, top_k], descending by logit, top_k <= E.
void router_reference(View<const float, 2> logits, View<int32_t, 2> experts, View<float, 2> weights,
                      const Execution& on);

}  // namespace fathom::kernels
