// The problem: a residual connection, out = x + y in bf16: two streams in, one out, one addition for six
// bytes. `warps` is how many each multiprocessor gets.
#pragma once

#include "core/dtype.h"
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

namespace fathom::lab::bytes_in_flight {

struct Residual {
  int64_t warps;
  View<const bf16, 1> x, y;
  View<bf16, 1> out;

  Residual(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void one_vector(const Residual& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_vectors(const Residual& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_vectors(const Residual& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void eight_vectors(const Residual& p, StreamRef stream);

}  // namespace fathom::lab::bytes_in_flight
