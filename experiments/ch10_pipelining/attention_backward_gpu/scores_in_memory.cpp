// dv = p' d_out, dq = scale ds k, dk = scale ds' q; s = q k', dp = d_out v'     (gradients.h)
//
// bytes   for each of a head's T^2 scores 8 to write s and dp, 8 to read them where the mask lets them count,
//         4 to write p and ds, 6 to read these for three products. T = 8192: 1.7 GB a head, causal 1.5 GB
// flops   10 D T^2 a head; a causal mask needs half of them
// limit   the tensor cores; in fact DRAM bandwidth as much: 16 heads of T = 8192, causal: 24 GB, 6 ms
// idea    none yet: the formula, step by step. For each query head two products by cuBLAS make scores and
//         the gradients of weights, a kernel makes p and ds of them, and three products sum over these. Heads
//         of a group add to the same dk and dv, in fp32
#include <memory>
#include <type_traits>

#include "cuda/cublas.h"
#include "gradients.h"
#include "softmax_backward.h"

namespace fathom::lab::attention_backward_gpu {

std::function<void(const Gradients&, StreamRef)> scores_in_memory(const Gradients&, StreamRef) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  const std::shared_ptr<cublasContext> handle = make_cublas_handle();
  // Partial sums stay in fp32, as in the other variants.
  FATHOM_CUBLAS(cublas()->set_math_mode(
      handle.get(),
      static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return [handle](const Gradients& p, StreamRef stream) {
    if (p.tokens() == 0) return;
    FATHOM_CUBLAS(cublas()->set_stream(handle.get(), stream));
    const auto tokens = static_cast<int>(p.tokens()), dim = static_cast<int>(p.head_dim());
    const auto row   = static_cast<int>(p.scores.stride(0));
    const auto q_row = static_cast<int>(p.q.stride(0)), k_row = static_cast<int>(p.k.stride(0));

    // c (T x T, fp32) = a b', where a has rows of queries and b of keys. cuBLAS is column-major, so it
    // multiplies the transposes.
    const auto products_of_rows = [&](const bf16* a, const bf16* b, float* c) {
      const float one = 1, zero = 0;
      FATHOM_CUBLAS(cublas()->gemm_ex(handle.get(), CUBLAS_OP_T, CUBLAS_OP_N, tokens, tokens, dim, &one, b,
                                      CUDA_R_16BF, k_row, a, CUDA_R_16BF, q_row, &zero, c, CUDA_R_32F, row,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
    // c (T x D) = scale w b, or scale w' b, where w is T x T; added to c if `add`.
    const auto weighted_sums = [&]<class T>(cublasOperation_t of_w, const bf16* w, const bf16* b, int b_row,
                                            float scale, bool add, T* c, int c_row) {
      const float beta  = add ? 1.0f : 0.0f;
      const auto c_type = std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;
      FATHOM_CUBLAS(cublas()->gemm_ex(handle.get(), CUBLAS_OP_N, of_w, dim, tokens, tokens, &scale, b,
                                      CUDA_R_16BF, b_row, w, CUDA_R_16BF, row, &beta, c, c_type, c_row,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
    for (int64_t head = 0; head < p.heads(); ++head) {
      const int64_t group = p.heads() / p.kv_heads(), kv_head = head / group;
      const bool add      = head % group > 0;
      const bf16 *const q = &p.q(0, head, 0), *const d_out = &p.d_out(0, head, 0);
      products_of_rows(q, &p.k(0, kv_head, 0), p.scores.data());
      products_of_rows(d_out, &p.v(0, kv_head, 0), p.d_weights.data());
      softmax_backward(p, head, stream);
      const auto sums_of_keys = [&](auto* dv, auto* dk, int to_row) {
        weighted_sums(CUBLAS_OP_T, p.weights.data(), d_out, q_row, 1, add, dv, to_row);
        weighted_sums(CUBLAS_OP_T, p.d_scores.data(), q, q_row, p.scale, add, dk, to_row);
      };
      if (group == 1) {
        sums_of_keys(&p.dv(0, kv_head, 0), &p.dk(0, kv_head, 0), k_row);
      } else {  // sums of a group stay in fp32 until its last head
        sums_of_keys(p.dv_sums.data(), p.dk_sums.data(), dim);
        if ((head + 1) % group == 0) round_group_sums(p, kv_head, stream);
      }
      weighted_sums(CUBLAS_OP_N, p.d_scores.data(), &p.k(0, kv_head, 0), k_row, p.scale, false,
                    &p.dq(0, head, 0), q_row);
    }
  };
}

}  // namespace fathom::lab::attention_backward_gpu
