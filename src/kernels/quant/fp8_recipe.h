// How the scale of an FP8 tensor is chosen when it is quantised again at every step (the recipes of NVIDIA's
// Transformer Engine):
//
//   current   from the numbers that are quantised: they are read once more, before the first is divided
//   delayed   from the largest magnitudes of the steps before: one pass, which finds this step's on the way
//   static    from a calibration before the first step: one pass, nothing is looked for
//
// A number is code * scale, as in kernels/quant/formats.h; Transformer Engine calls 1 / scale the scale.
#pragma once

#include "core/view.h"
#include "kernels/quant/formats.h"

namespace fathom::kernels {

// The scale with which `amax` becomes the largest code, or 2^-margin of it: a later tensor may be 2^margin
// times as large before it saturates.
FATHOM_HD inline float fp8_scale(float amax, float largest_code, int margin) {
  const float scale = amax / largest_code * static_cast<float>(1 << margin);
  return scale > kSmallestScale ? scale : kSmallestScale;
}

// Transformer Engine's DelayedScaling: amax_history_len, margin, amax_compute_algo.
struct DelayedScaling {
  enum class AmaxOf {
    history,      // "max": a large step keeps the scale up until it leaves the history, so scales don't swing
    most_recent,  // the last step's alone
  };
  int history = 1024;  // steps
  int margin  = 0;     // 0 .. 30
  AmaxOf of   = AmaxOf::history;
};

}  // namespace fathom::kernels
