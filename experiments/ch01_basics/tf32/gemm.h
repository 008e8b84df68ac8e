// out = a b, n x n, row-major fp32. The inputs have 10 bits of mantissa, as many as tf32 has: their products
// are then exact in tf32 as they are in fp32, both variants compute the same sums, and one tolerance holds
// for both.
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
