// The host's side of delayed scaling (kernels/quant/fp8_recipe.h).
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "core/expect.h"
#include "kernels/quant/fp8_recipe.h"

namespace fathom::kernels {

// The largest magnitudes of the last steps of one tensor.
class AmaxHistory {
 public:
  AmaxHistory(const DelayedScaling& recipe, float largest_code)
      : recipe_(recipe),
        largest_code_(largest_code),
        amax_(static_cast<size_t>(recipe.of == DelayedScaling::AmaxOf::history ? recipe.history : 1)) {
    FATHOM_EXPECT(recipe.history > 0 && recipe.margin >= 0 && recipe.margin <= 30,
                  "a history has at least one step, and a margin is 0 to 30 powers of two");
  }

  // After a step. What is not finite, or all zeros, says nothing of the next step.
  void record(float amax) {
    if (!(std::isfinite(amax) && amax > 0)) return;
    amax_[next_] = amax;
    next_        = (next_ + 1) % amax_.size();
    seen_        = true;
  }
  // For the next step; 1 before the first.
  float scale() const {
    if (!seen_) return 1;
    float largest = 0;
    for (const float amax : amax_) largest = std::fmax(largest, amax);
    return fp8_scale(largest, largest_code_, recipe_.margin);
  }

 private:
  DelayedScaling recipe_;
  float largest_code_;
  std::vector<float> amax_;
  size_t next_ = 0;
  bool seen_   = false;
};

}  // namespace fathom::kernels
