// out(i, n) = sum_k x(i, k) w(e(i), n, k)               rows sorted by expert, bf16, 32 experts
//
// bytes   1.06 GB of weights at width 2880; 17 KB a row
// flops   4 width^2 a row
// limit   bf16 peak of the tensor cores. H200: 2048 tokens are 272 GFLOP, 0.30 ms at 900 TFLOP/s
// idea    none yet: a library call for each expert. 256 rows are some 50 tiles for 132 SMs
#include <memory>

#include "cuda/cublas.h"
#include "grouped_gemm.h"
#include "lab/problem.h"

namespace fathom::lab::grouped_gemm_gpu {

std::function<void(const GroupedGemm&, StreamRef)> one_gemm_each(const GroupedGemm&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  return [handle](const GroupedGemm& p, StreamRef stream) {
    if (p.x.extent(0) == 0) return;
    const int inputs = static_cast<int>(p.x.extent(1)), outputs = static_cast<int>(p.out.extent(1));
    const auto offsets = offsets_on_host(p);
    const float one = 1, zero = 0;
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    for (int64_t e = 0; e < kExperts; ++e) {
      const int begin = offsets[static_cast<size_t>(e)], n = offsets[static_cast<size_t>(e + 1)] - begin;
      if (n == 0) continue;
      // cuBLAS is column-major: it multiplies the transposes, in reverse order.
      FATHOM_CUBLAS(cublas()->gemm_ex(handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, outputs, n, inputs, &one,
                                      &p.w(e, 0, 0), CUDA_R_16BF, inputs, &p.x(begin, 0), CUDA_R_16BF, inputs,
                                      &zero, &p.out(begin, 0), CUDA_R_16BF, outputs, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT));
    }
  };
}

}  // namespace fathom::lab::grouped_gemm_gpu
