// Kernels of variants that keep all scores of a decode step in memory, between products of a library, which
// reads contiguous rows.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::lab::dense_scores {

// to(t, h, j, d) = from(pages(t, j / 64), h, j % 64, d) for j < context. A row is a multiple of 16 bytes.
FATHOM_CUDA_LAUNCHER void gather_pages(View<const bf16, 4> from, View<const int32_t, 2> pages,
                                       int64_t context, View<bf16, 4> to, StreamRef stream);

// weights(r, j) = softmax over j < context of scale scores(r, j). A row of -infinity alone gives NaN.
FATHOM_CUDA_LAUNCHER void softmax_rows(View<const float, 2> scores, int64_t context, float scale,
                                       View<bf16, 2> weights, StreamRef stream);

}  // namespace fathom::lab::dense_scores
