// out = a b, n x n, row-major fp32. The inputs use all 23 bits of mantissa. The tolerance is that of tf32
// inputs; a record's `checked` has the largest error of each variant beside it.
#pragma once

#include <functional>

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

namespace fathom::lab::tf32 {

struct Gemm {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;

  Gemm(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

// Both open cuBLAS and make a handle; the returned functions are timed.
using Call = std::function<void(const Gemm&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cuda_cores(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER Call tensor_cores(const Gemm&, StreamRef);

}  // namespace fathom::lab::tf32
