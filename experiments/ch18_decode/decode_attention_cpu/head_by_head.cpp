// out(h) = softmax(q(h) k' / 8, sink(h)) v       64 heads over 8 key-value heads, context x 64 each, fp32
//
// bytes   4096 a position if every key and value is read once; here each is read by 8 heads
// flops   16384 a position
// limit   memory bandwidth
// idea    none yet: a head at a time, three passes: scores, softmax, values
#include "attention.h"
#include "row_steps.h"

namespace fathom::lab::decode_attention_cpu {

void head_by_head(const DecodeAttention& p, Context&) {
  for (int64_t h = 0; h < kHeads; ++h) {
    float* scores = &p.scores(0, 0);
    for (int64_t j = 0; j < p.context(); ++j) scores[j] = score_of(&p.q(h, 0), p.key(j, h / kGroup));
    const float total   = softmax(static_cast<float>(p.sinks(h)), scores, p.context());
    float sum[kHeadDim] = {};
    for (int64_t j = 0; j < p.context(); ++j) add_value(scores[j], p.value(j, h / kGroup), sum);
    for (int64_t d = 0; d < kHeadDim; ++d) p.out(h, d) = sum[d] / total;
  }
}

}  // namespace fathom::lab::decode_attention_cpu
