// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v       causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out. 10 for each of the 64 T^2 scores: 4 to write it and, in reach, 4 to
//         read it; 2 to write and 2 to read its weight. 2048 tokens: 2.7 GB
// flops   16384 T^2; a causal mask needs half of them, a window less
// limit   the tensor cores; in fact DRAM bandwidth
// idea    none yet: the formula, step by step. For each key-value head two products by cuBLAS, batched over
//         the 8 query heads that share its keys and values (batch stride 0), and between them the softmax of
//         all rows. 8 heads' scores of 2048 tokens are 134 MB
#include <memory>

#include "cuda/cublas.h"
#include "gather_softmax.h"
#include "lab/problem.h"

namespace fathom::lab::flash_attention_gpu {

std::function<void(const PromptAttention&, StreamRef)> scores_in_memory(const PromptAttention&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  // Partial sums stay in fp32, as in the other variants.
  FATHOM_CUBLAS(cublas()->set_math_mode(
      handle.get(),
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return [handle](const PromptAttention& p, StreamRef stream) {
    const int tokens = static_cast<int>(p.tokens());
    if (tokens == 0) return;
    FATHOM_EXPECT(tokens <= kMaxScoredTokens,
                  "scores_in_memory: the workspace holds the scores of 2048 tokens");
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const int row               = static_cast<int>(p.scores.stride(1));
    const long long head_stride = p.scores.stride(0);
    const float one = 1, zero = 0;
    gather(p, p.gathered, stream);
    for (int64_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      const int64_t head = kv_head * kGroup;
      // cuBLAS is column-major, so it multiplies the transposes: scores' = (k')' q'.
      FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
          handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, tokens, tokens, kHeadDim, &one,
          &p.gathered(0, kv_head, 0, 0), CUDA_R_16BF, kHeadDim, 0, &p.q(0, head, 0), CUDA_R_16BF,
          kHeads * kHeadDim, kHeadDim, &zero, p.scores.data(), CUDA_R_32F, row, head_stride, kGroup,
          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
      softmax(p, kv_head, stream);
      FATHOM_CUBLAS(cublas()->gemm_strided_batched_ex(
          handle.get(), CUBLAS_OP_N, CUBLAS_OP_N, kHeadDim, tokens, tokens, &one,
          &p.gathered(1, kv_head, 0, 0), CUDA_R_16BF, kHeadDim, 0, p.weights.data(), CUDA_R_16BF, row,
          head_stride, &zero, &p.out(0, head, 0), CUDA_R_16BF, kHeads * kHeadDim, kHeadDim, kGroup,
          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
  };
}

}  // namespace fathom::lab::flash_attention_gpu
