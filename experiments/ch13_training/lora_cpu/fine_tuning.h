// The problem: two steps of AdamW over the same batch on a model of models/tiny's shape. A variant says what
// is trained: all parameters, or adapters of attention of some rank (src/train/lora.h).
#pragma once

#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::lora_cpu {

struct FineTuning {
  View<const float, 1> weights;  // of train::Parameters
  View<const int32_t, 1> text;   // [tokens + 1]
  View<float, 1> losses;         // [2], before each step
  // Bytes of gradients and moments, and parameters that are trained.
  View<double, 1> kept;  // [2]

  FineTuning(const Point& at, Arena& arena);
  Cost cost() const;
  // The first loss is that of the weights; the second is below it.
  void check(Checker& checker) const;
  void metrics(CallMetrics& metrics) const;

  int64_t tokens() const { return text.extent(0) - 1; }
};

// rank 0: all parameters.
void two_steps(const FineTuning& p, int64_t rank, Context& context);

void full(const FineTuning& p, Context& context);
void rank_8(const FineTuning& p, Context& context);
void rank_64(const FineTuning& p, Context& context);

}  // namespace fathom::lab::lora_cpu
