// out = softmax(q k' / sqrt(64)) v           T x 64, fp32, one head
//
// bytes   1024 T   and 20 T^2 for the scores: written (their lines are fetched first), read and written by
//         the softmax, read again
// flops   256 T^2
// limit   FMA peak; in fact the bandwidth of the level that holds T^2 scores
// idea    none yet: the formula, step by step. All scores, the softmax of all rows, the product with v
#include "attention.h"
#include "steps.h"

namespace fathom::lab::flash_attention_cpu {

void scores_in_memory(const Attention& p, Context&) {
  const int64_t tokens = p.q.extent(0), stride = p.scores.stride(0);
  float* s = p.scores.data();
  transpose_keys(p);
  for (int64_t i = 0; i < tokens; i += kRows)
    scores(p, i, std::min(kRows, tokens - i), 0, tokens, s + i * stride, stride);
  for (int64_t i = 0; i < tokens; ++i) {
    float* row      = s + i * stride;
    const float sum = exponentials(row, tokens, maximum(row, tokens));
    for (int64_t j = 0; j < tokens; ++j) row[j] /= sum;
  }
  for (int64_t i = 0; i < tokens; i += kRows)
    product(std::min(kRows, tokens - i), kHeadDim, tokens, s + i * stride, stride,
            rows_of(p.v.data(), kHeadDim), p.out.data() + i * kHeadDim, kHeadDim, false);
}

}  // namespace fathom::lab::flash_attention_cpu
