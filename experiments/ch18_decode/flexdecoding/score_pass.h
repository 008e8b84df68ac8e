// The pass of scores_in_memory over all scores.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::lab::flexdecoding {

// scores(t Hq + h, j) = functor(scale scores(t Hq + h, j), h, context - 1 - j), -infinity before the first
// position in reach. Functors: those of kernels::flexdecoding.
template <class Functor>
void score_pass(View<float, 2> scores, int64_t heads, int64_t context, float scale, const Functor& functor,
                StreamRef stream);

}  // namespace fathom::lab::flexdecoding
