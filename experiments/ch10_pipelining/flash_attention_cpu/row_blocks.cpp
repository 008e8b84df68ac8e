// out = softmax(q k' / sqrt(64)) v           T x 64, fp32, one head
//
// bytes   1024 T   and 20 T^2 for the scores, now in a cache that holds 96 T of them
// flops   256 T^2
// limit   FMA peak
// idea    all three steps for a block of 96 queries, then the next block: its scores are 384 T bytes, in
//         memory that every block reuses. out is divided by the sum, 64 numbers a row instead of T weights
#include "attention.h"
#include "steps.h"

namespace fathom::lab::flash_attention_cpu {

void row_blocks(const Attention& p, Context&) {
  const int64_t tokens = p.q.extent(0), stride = p.scores.stride(0);
  float* s = p.scores.data();
  transpose_keys(p);
  for (int64_t i = 0; i < tokens; i += kRows) {
    const int64_t rows = std::min(kRows, tokens - i);
    float* out         = p.out.data() + i * kHeadDim;
    float sum[kRows];
    scores(p, i, rows, 0, tokens, s, stride);
    for (int64_t r = 0; r < rows; ++r)
      sum[r] = exponentials(s + r * stride, tokens, maximum(s + r * stride, tokens));
    product(rows, kHeadDim, tokens, s, stride, rows_of(p.v.data(), kHeadDim), out, kHeadDim, false);
    for (int64_t r = 0; r < rows; ++r) scale_row(out + r * kHeadDim, 1 / sum[r]);
  }
}

}  // namespace fathom::lab::flash_attention_cpu
