// out(t, h) = softmax(scale q(t, h) k' + bias) v over the token's document up to itself        bf16
//
// bytes   for each of the 16 T^2 scores: 4 to write it and, where it is visible, 4 to read it; 2 to write its
//         weight and 2 to read it. 16384 tokens: 34 GB
// flops   64 D T^2 with heads of D dimensions, whatever the mask shows
// limit   DRAM bandwidth: 8 ms at 4.1 TB/s for 16384 tokens
// idea    none yet: the formula as an eager framework runs it. cuBLAS multiplies all queries and all keys, a
//         kernel adds the bias, masks and takes the softmax, cuBLAS multiplies with the values. To bound the
//         memory it goes by 1024 rows and by the 4 heads that share keys (batch stride 0)
#include <algorithm>
#include <memory>

#include "cuda/cublas.h"
#include "experiments/labs/flexattention/masked_softmax.h"
#include "lab/problem.h"

namespace fathom::lab::flexattention {

Call dense_scores(const PackedDocuments&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  // Partial sums stay in fp32, as in the other variants.
  FATHOM_CUBLAS(cublas()->set_math_mode(
      handle.get(),
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return [handle](const PackedDocuments& p, StreamRef stream) {
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const int tokens = static_cast<int>(p.tokens()), size = p.head_size();
    const int row               = static_cast<int>(p.scores.stride(1));
    const long long head_stride = p.scores.stride(0);
    const float one = 1, zero = 0;
    for (int first = 0; first < tokens; first += static_cast<int>(kChunkRows))
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        const int head = kv_head * kGroup, rows = std::min(static_cast<int>(kChunkRows), tokens - first);
        // cuBLAS is column-major, so it multiplies the transposes: scores' = (k')' q'.
        FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
            handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, tokens, rows, size, &one, &p.k(0, kv_head, 0),
            CUDA_R_16BF, kKvHeads * size, 0, &p.q(first, head, 0), CUDA_R_16BF, kHeads * size, size, &zero,
            p.scores.data(), CUDA_R_32F, row, head_stride, kGroup, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        masked_softmax(p, first, rows, kv_head, stream);
        FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
            handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, size, rows, tokens, &one, &p.v(0, kv_head, 0),
            CUDA_R_16BF, kKvHeads * size, 0, p.weights.data(), CUDA_R_16BF, row, head_stride, &zero,
            &p.out(first, head, 0), CUDA_R_16BF, kHeads * size, size, kGroup, CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT));
      }
  };
}

}  // namespace fathom::lab::flexattention
