// The problem: RMSNorm of T tokens with D features, bf16 in and out, everything between in fp32.
//   y(t, d) = x(t, d) * weight(d) / sqrt(mean_d x(t, d)^2 + epsilon)
// Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::fused_rmsnorm_gpu {

inline constexpr float kEpsilon = 1e-5f;

struct RmsNorm {
  View<const bf16, 2> x;
  View<const bf16, 1> weight;
  View<bf16, 2> y;
  View<float, 1> scale;  // workspace: of each token

  RmsNorm(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void two_kernels(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_walks(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void registers(const RmsNorm& p, StreamRef stream);
// Opens cuDNN and builds a plan for this shape; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const RmsNorm&, StreamRef)> cudnn(const RmsNorm& p, StreamRef);

}  // namespace fathom::lab::fused_rmsnorm_gpu
