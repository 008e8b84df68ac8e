// The problem: out = sqrt(sin(x)) for n numbers in [0, pi], fp32, as in fused_elementwise_cpu.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::fused_elementwise_gpu {

struct Elementwise {
  View<const float, 1> x;
  View<float, 1> out;

  Elementwise(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void two_kernels(const Elementwise& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fused(const Elementwise& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void several_loads(const Elementwise& p, StreamRef stream);

}  // namespace fathom::lab::fused_elementwise_gpu
