// out = a b                   n x n, fp32
//
// bytes   12 n^2    8 n^2 read + 4 n^2 written
// flops   2 n^3
// limit   in this mode, the FMA peak of the CUDA cores. H200: 67 TFLOP/s; n = 4096 is 137 GFLOP, 2.1 ms. The
//         experiment's limit is the tensor cores' 494 TFLOP/s
// idea    baseline: cuBLAS's default: fp32 products run on the CUDA cores
#include <memory>
#include "cuda/cublas.h"
#include "gemm.h"
#include "lab/problem.h"

namespace fathom::lab::tf32 {

Call cuda_cores(const Gemm&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle](const Gemm& p, StreamRef stream) {
    const int n = static_cast<int>(p.n);
    if (n == 0) return;  // cuBLAS rejects a leading dimension of 0
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    // cuBLAS counts column-major: it multiplies the transposes, in the other order.
    const float one = 1, zero = 0;
    FATHOM_CUBLAS(cublas()->gemm_ex(handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, p.b.data(),
                                    CUDA_R_32F, n, p.a.data(), CUDA_R_32F, n, &zero, p.out.data(), CUDA_R_32F,
                                    n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  };
}

}  // namespace fathom::lab::tf32
