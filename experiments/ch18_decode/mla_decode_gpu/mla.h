// The problem: one decode step of multi-head latent attention in its absorbed form, a query for each of S
// sequences with the same context (kernels/attention/mla_decode.h).
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::mla_decode_gpu {

inline constexpr float kScale =
    0.0721687836f;  // 1 / sqrt(128 + 64): DeepSeek's, of the heads before absorption

struct MlaStep {
  int64_t context;
  View<const bf16, 3> q;            // S x H x 576
  View<const bf16, 3> latent;       // pages x 64 x 576
  View<const int32_t, 1> contexts;  // S, all the same
  View<const int32_t, 2> pages;     // S x pages of a sequence, in any order
  View<bf16, 3> out;                // S x H x 512

  View<float, 1> partials;  // workspace of flash and of the op
  // Of scores_in_memory. Rows are padded to 16 bytes.
  View<bf16, 4> rows;     // S x 1 x context x 576
  View<float, 2> scores;  // S H x context
  View<bf16, 2> weights;  // S H x context

  MlaStep(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER std::function<void(const MlaStep&, StreamRef)> scores_in_memory(const MlaStep&,
                                                                                     StreamRef);
FATHOM_CUDA_LAUNCHER void flash(const MlaStep& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void warpgroups(const MlaStep& p, StreamRef stream);

}  // namespace fathom::lab::mla_decode_gpu
