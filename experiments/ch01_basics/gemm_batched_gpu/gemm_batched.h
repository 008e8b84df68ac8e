// out[p] = a[p] b[p] for a batch of small square row-major fp32 matrices.
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

namespace fathom::lab::gemm_batched_gpu {

struct GemmBatched {
  int64_t batch, size;
  View<const float, 3> a, b;
  View<float, 3> out;

  GemmBatched(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t p, int64_t i, int64_t j) const;
};

// Both open cuBLAS and make a handle; the returned functions are timed.
using Call = std::function<void(const GemmBatched&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call one_by_one(const GemmBatched&, StreamRef);
FATHOM_CUDA_LAUNCHER Call strided_batched(const GemmBatched&, StreamRef);

}  // namespace fathom::lab::gemm_batched_gpu
