// C[p] = A[p] B[p] for a batch of small square row-major fp32 matrices.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/view.h"
#include "lab/problem.h"

namespace fathom::lab::gemm_batched_cpu {

struct GemmBatched {
  int64_t batch, size;
  View<const float, 3> a, b;
  View<float, 3> out;

  GemmBatched(const Point& at, Arena& arena)
      : batch(at["batch"]),
        size(at["size"]),
        a(arena.input<float>({batch, size, size}, Uniform{-1, 1})),
        b(arena.input<float>({batch, size, size}, Uniform{-1, 1})),
        out(arena.output<float>({batch, size, size})) {}

  Cost cost() const {
    return {.read    = a.bytes() + b.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(batch * size * size * size)};
  }

  Sum expected(int64_t p, int64_t i, int64_t j) const {
    Sum sum{.length = size};
    for (int64_t k = 0; k < size; ++k) {
      const double product = static_cast<double>(a(p, i, k)) * b(p, k, j);
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
    return sum;
  }
};

void one_by_one(const GemmBatched&, Context&);
void batched(const GemmBatched&, Context&);
// Open the library; the returned functions are timed.
Launch<GemmBatched> openblas(const GemmBatched&, Context&);
Launch<GemmBatched> onednn_matmul(const GemmBatched&, Context&);

}  // namespace fathom::lab::gemm_batched_cpu
