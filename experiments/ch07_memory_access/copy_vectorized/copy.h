// The problem: out = in, n floats.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::copy_vectorized {

struct Copy {
  View<const float, 1> in;  // both begin at a multiple of 256 bytes, as all of the arena's buffers do
  View<float, 1> out;

  Copy(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void scalar(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vector2(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vector4(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vector8(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void several(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void streaming(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cuda_memcpy(const Copy& p, StreamRef stream);

}  // namespace fathom::lab::copy_vectorized
