// The problem: out(0) = sum of in(i), n fp32.
#pragma once

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

namespace fathom::lab::reduction {

struct Total {
  View<const float, 1> in;
  View<float, 1> out;
  // Workspace: sums of blocks (of those sums again behind them), of at least 128 elements each; for the
  // library its own workspace.
  View<float, 1> partial;
  View<uint32_t, 1> ticket;

  Total(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void interleaved(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void sequential(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void shuffled(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void grid_stride(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vectorized(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_pass(const Total& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cub_reduce(const Total& p, StreamRef stream);

}  // namespace fathom::lab::reduction
