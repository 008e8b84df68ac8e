// The problem: out = in, n floats. How many a thread copies, and so how far apart neighbours are when they
// do not share lines, is `stride`.
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

namespace fathom::lab::copy_coalesced {

struct Copy {
  int64_t stride;  // floats for each thread, 1 to 1024
  View<const float, 1> in;
  View<float, 1> out;

  Copy(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void strided(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void coalesced(const Copy& p, StreamRef stream);

}  // namespace fathom::lab::copy_coalesced
