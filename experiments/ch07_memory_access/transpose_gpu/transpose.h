// The problem: out(j, i) = in(i, j), fp32, n x n, both row-major.
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
}  // namespace fathom::lab

namespace fathom::lab::transpose_gpu {

struct Transpose {
  View<const float, 2> in;  // n <= 46340, so that elements are counted in 32 bits
  View<float, 2> out;

  Transpose(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void naive(const Transpose& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile(const Transpose& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void padded(const Transpose& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void swizzled(const Transpose& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vectorized(const Transpose& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void square_order(const Transpose& p, StreamRef stream);

// Opens cuBLAS and makes a handle; the returned function is timed.
using Call = std::function<void(const Transpose&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cublas_geam(const Transpose&, StreamRef);

}  // namespace fathom::lab::transpose_gpu
