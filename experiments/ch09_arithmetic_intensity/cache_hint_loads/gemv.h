// The problem: out = A x with a bf16 matrix of M rows of K and an fp32 vector that every row reads.
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

namespace fathom::lab::cache_hint_loads {

struct Gemv {
  View<const bf16, 2> a;
  View<const float, 1> x;
  View<float, 1> out;

  Gemv(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t m) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Gemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void no_allocate(const Gemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cache_global(const Gemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void prefetched(const Gemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_rows(const Gemv& p, StreamRef stream);

}  // namespace fathom::lab::cache_hint_loads
