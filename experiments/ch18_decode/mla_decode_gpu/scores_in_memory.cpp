// out(t, h) = softmax(scale q(t, h) k') v        k: rows of 576 numbers, v: the first 512 of each
//
// bytes   a position 1152, read to be gathered, written, and read by both products; a score 4 to write and 4
//         to read, its weight 2 and 2. 64 sequences of 4096 positions, 64 heads: 1.4 GB
// flops   2176 a score
// limit   DRAM bandwidth
// idea    none yet: latents are gathered from their pages, then the formula step by step: a product by
//         cuBLAS, batched over sequences, the softmax of all rows, and another product
#include <memory>

#include "cuda/check.h"
#include "cuda/cublas.h"
#include "experiments/ch18_decode/dense_scores.h"
#include "kernels/attention/mla_decode.h"
#include "lab/problem.h"
#include "mla.h"

namespace fathom::lab::mla_decode_gpu {

std::function<void(const MlaStep&, StreamRef)> scores_in_memory(const MlaStep&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  // Partial sums stay in fp32, as in the other variants.
  FATHOM_CUBLAS(cublas()->set_math_mode(
      handle.get(),
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return [handle](const MlaStep& p, StreamRef stream) {
    constexpr int kKey = kernels::kMlaKey, kValue = kernels::kMlaValue;
    const int sequences = static_cast<int>(p.q.extent(0)), heads = static_cast<int>(p.q.extent(1)),
              context = static_cast<int>(p.context), row = static_cast<int>(p.scores.stride(0));
    if (p.out.size() == 0) return;
    if (context == 0) {  // no product: zeros
      FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
      return;
    }
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const float one = 1, zero = 0;
    dense_scores::gather_pages({p.latent.data(), {p.latent.extent(0), 1, kernels::kMlaPage, kKey}}, p.pages,
                               p.context, p.rows, stream);
    // cuBLAS is column-major, so it multiplies the transposes: scores' = (k')' q'.
    FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
        handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, context, heads, kKey, &one, p.rows.data(), CUDA_R_16BF, kKey,
        p.rows.stride(0), p.q.data(), CUDA_R_16BF, kKey, p.q.stride(0), &zero, p.scores.data(), CUDA_R_32F,
        row, static_cast<long long>(heads) * row, sequences, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    dense_scores::softmax_rows(p.scores, p.context, kScale, p.weights, stream);
    FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
        handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, kValue, heads, context, &one, p.rows.data(), CUDA_R_16BF,
        kKey, p.rows.stride(0), p.weights.data(), CUDA_R_16BF, row, static_cast<long long>(heads) * row,
        &zero, p.out.data(), CUDA_R_16BF, kValue, p.out.stride(0), sequences, CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT));
  };
}

}  // namespace fathom::lab::mla_decode_gpu
