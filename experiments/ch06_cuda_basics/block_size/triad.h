// The problem: out(i) = kScale x(i) + y(i), fp32, n elements.
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

namespace fathom::lab::block_size {

inline constexpr float kScale = 3;

struct Triad {
  View<const float, 1> x;
  View<const float, 1> y;
  View<float, 1> out;

  Triad(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void threads_256(const Triad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void threads_32(const Triad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void threads_64(const Triad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void threads_128(const Triad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void threads_512(const Triad& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void threads_1024(const Triad& p, StreamRef stream);

}  // namespace fathom::lab::block_size
