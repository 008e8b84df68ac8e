// The pass of scores_in_memory over all scores.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::lab::flexdecoding {

// scores(t Hq + h, j) = functor(scale scores(t Hq + h, j), h, context - 1 - j), -infinity before the
// last `window` positions. Functors: those of kernels/attention/attention_scores.h.
template <class Functor>
void score_pass(View<float, 2> scores, int64_t heads, int64_t context, int window, float scale,
                const Functor& functor, StreamRef stream);

}  // namespace fathom::lab::flexdecoding
