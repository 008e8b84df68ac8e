// out(t, h) = softmax over j of functor(scale q(t, h) k(j)') v(j)       8 query heads to a key-value head
//
// bytes   keys and values are gathered from their pages (read and written) and read by the products: three
//         times as many as are needed. A score 4 to write, 8 for the functor's pass, 4 to read and 2 for its
//         weight, twice
// flops   4 D a score
// limit   DRAM bandwidth
// idea    none yet: the formula in the steps of an eager framework. Two products by cuBLAS, batched over
//         sequences and key-value heads, between them a pass for the functor and one for the softmax
#include <memory>

#include "cuda/check.h"
#include "cuda/cublas.h"
#include "experiments/ch18_decode/dense_scores.h"
#include "flex.h"
#include "score_pass.h"

namespace fathom::lab::flexdecoding {

std::function<void(const FlexDecode&, StreamRef)> scores_in_memory(const FlexDecode&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  // Partial sums stay in fp32, as in the other variants.
  FATHOM_CUBLAS(cublas()->set_math_mode(
      handle.get(),
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return [handle](const FlexDecode& p, StreamRef stream) {
    constexpr int kGroup = ragged_decode::kGroup;
    const int context = static_cast<int>(p.longest), size = static_cast<int>(p.q.extent(2)),
              row = static_cast<int>(p.scores.stride(0)), stride = kGroup * row,
              items = static_cast<int>(p.q.extent(0) * p.k.extent(1));
    if (p.out.size() == 0) return;
    if (context == 0) {  // no product: zeros
      FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
      return;
    }
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const float one = 1, zero = 0;
    dense_scores::gather_pages(p.k, p.pages, context, p.key_rows, stream);
    dense_scores::gather_pages(p.v, p.pages, context, p.value_rows, stream);
    // cuBLAS is column-major, so it multiplies the transposes: scores' = (k')' q'.
    FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
        handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, context, kGroup, size, &one, p.key_rows.data(), CUDA_R_16BF,
        size, p.key_rows.stride(1), p.q.data(), CUDA_R_16BF, size, kGroup * size, &zero, p.scores.data(),
        CUDA_R_32F, row, stride, items, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    p.with_functor([&](const auto& functor) {
      score_pass(p.scores, p.q.extent(1), context, p.window(), p.scale(), functor, stream);
    });
    dense_scores::softmax_rows(p.scores, context, 1, p.weights, stream);
    FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
        handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, size, kGroup, context, &one, p.value_rows.data(), CUDA_R_16BF,
        size, p.value_rows.stride(1), p.weights.data(), CUDA_R_16BF, row, stride, &zero, p.out.data(),
        CUDA_R_16BF, size, kGroup * size, items, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  };
}

}  // namespace fathom::lab::flexdecoding
