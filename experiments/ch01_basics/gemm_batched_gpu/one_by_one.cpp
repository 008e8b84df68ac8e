// out[p] = a[p] b[p]          batch products of size x size, fp32
//
// bytes   12 batch size^2   8 read + 4 written for each element
// flops   2 batch size^3
// limit   FMA peak of the CUDA cores. H200: 67 TFLOP/s; 512 products of 256 x 256 are 17 GFLOP, 0.26 ms. Not
//         reached: 512 launches take the host 1 ms, run one after the other, and each fills a part of the GPU
// idea    a loop over the batch that calls cuBLAS for each product
#include <memory>

#include "cuda/cublas.h"
#include "gemm_batched.h"
#include "lab/problem.h"

namespace fathom::lab::gemm_batched_gpu {

Call one_by_one(const GemmBatched&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle](const GemmBatched& q, StreamRef stream) {
    const int n             = static_cast<int>(q.size);
    const long long element = q.size * q.size;
    if (n == 0) return;  // cuBLAS rejects a leading dimension of 0
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    // cuBLAS counts column-major: it multiplies the transposes, in the other order.
    const float one = 1, zero = 0;
    for (int64_t p = 0; p < q.batch; ++p)
      FATHOM_CUBLAS(cublas()->sgemm(handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one,
                                    q.b.data() + p * element, n, q.a.data() + p * element, n, &zero,
                                    q.out.data() + p * element, n));
  };
}

}  // namespace fathom::lab::gemm_batched_gpu
