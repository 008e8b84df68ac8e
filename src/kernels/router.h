// The experts of each token: the top_k largest logits, the lower index first where two are equal, and the
// softmax over those alone (specs/gpt-oss.md section 5).
#pragma once

#include <cstdint>

#include "core/execution.h"
#include "core/view.h"

namespace fathom::kernels {

// logits [T, E], no NaN; experts, weights [T, top_k], descending by logit, top_k <= E.
void router_reference(View<const float, 2> logits, View<int32_t, 2> experts, View<float, 2> weights,
                      const Execution& on);

}  // namespace fathom::kernels
