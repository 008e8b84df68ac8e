// Norm and router of gpt-oss-20b: 32 experts, 4 a token.
//   y = norm x / sqrt(mean x^2 + epsilon) in bf16,  logits = router y + bias,  experts = the 4 largest,
//   weights = the softmax over those 4
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::fused_norm_router {

inline constexpr float kEpsilon   = 1e-5f;
inline constexpr int64_t kExperts = 32, kChosen = 4;
inline constexpr int64_t kMaxWidth = 3072;  // widths are multiples of 16

struct Routing {
  int64_t rows, width;
  View<const float, 2> x;
  View<const float, 1> norm;
  View<const bf16, 2> router;
  View<const float, 1> bias;
  View<const int32_t, 1> positions;  // of the tokens in their sequences; -1 would be padding
  View<bf16, 2> y;
  View<int32_t, 2> experts;  // descending by logit, the lower expert first where two are equal
  View<float, 2> weights;
  View<float, 2> logits;     // workspace
  View<uint8_t, 1> scratch;  // workspace of the library

  Routing(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

// The kernels of `separate` around the product.
FATHOM_CUDA_LAUNCHER void normalize(const Routing& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void choose(const Routing& p, StreamRef stream);

// Plans the product; the returned call is timed.
using Call = std::function<void(const Routing&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call separate(const Routing& p, StreamRef stream);

FATHOM_CUDA_LAUNCHER void fused(const Routing& p, StreamRef stream);

}  // namespace fathom::lab::fused_norm_router
