// out = a b                   n x n, fp32
//
// bytes   12 n^2    8 n^2 read + 4 n^2 written
// flops   2 n^3
// limit   FMA peak. H200: 67 TFLOP/s; n = 4096 is 137 GFLOP, 2.1 ms
// idea    the yardstick: cublasSgemm, fp32 products without tf32
#include <memory>

#include "library.h"

#include "cuda/cublas.h"
#include "lab/problem.h"

namespace fathom::lab::matmul_tiled {

std::function<void(const Matmul&, StreamRef)> library(const Matmul&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle](const Matmul& p, StreamRef stream) {
    const int n = static_cast<int>(p.n);
    if (n == 0) return;  // cuBLAS rejects a leading dimension of 0
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    // cuBLAS counts column-major: it multiplies the transposes, in the other order.
    const float one = 1, zero = 0;
    FATHOM_CUBLAS(cublas()->sgemm(handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, p.b.data(), n,
                                  p.a.data(), n, &zero, p.out.data(), n));
  };
}

}  // namespace fathom::lab::matmul_tiled
