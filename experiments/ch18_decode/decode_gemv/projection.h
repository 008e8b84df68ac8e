// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      x and w bf16, out fp32
//
// M matrices [N, K] with T rows each, one after the other, like a model's layers.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::decode_gemv {

// Numbers of weights in either layout.
struct Weights {
  int64_t matrices, outputs, inputs;

  int64_t plain() const { return matrices * outputs * inputs; }
  int64_t packed() const { return matrices * kernels::padded(outputs) * inputs; }
};

struct Projection {
  int64_t rows, outputs, inputs, matrices;
  View<const bf16, 3> x;
  // Every matrix twice: in the checkpoint's layout, and packed (kernels/gemm/packed_weights.h), its rows
  // padded with zeros to a multiple of 64. A variant reads one of the two.
  View<const bf16, 1> both;
  View<const bf16, 3> w;
  View<const bf16, 2> packed;  // [M, elements of one]
  View<float, 3> out;
  View<uint8_t, 1> scratch;  // workspace of the library

  Projection(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t m, int64_t t, int64_t n) const;
};

// Fills host memory with random weights in the checkpoint's layout, then the same packed.
FATHOM_CUDA_LAUNCHER void fill_weights(bf16* to, const Weights& of, uint64_t seed);

FATHOM_CUDA_LAUNCHER void warp_per_output(const Projection& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void packed_product(const Projection& p, StreamRef stream);

// Plans the product; the returned call is timed.
using Call = std::function<void(const Projection&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cublaslt(const Projection&, StreamRef);

}  // namespace fathom::lab::decode_gemv
