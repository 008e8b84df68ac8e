// out(h) = softmax(q(h) k' / 8, sink(h)) v       64 heads over 8 key-value heads, context x 64 each, fp32
//
// bytes   4096 a position, each key and value read once
// flops   16384 a position
// limit   memory bandwidth
// idea    the 8 query heads of a group share each read: a key is scored for all of them while it is in L1
#include "attention.h"
#include "row_steps.h"

namespace fathom::lab::decode_attention_cpu {

void group_by_group(const DecodeAttention& p, Context&) {
  for (int64_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    const int64_t first = kv_head * kGroup;
    for (int64_t j = 0; j < p.context(); ++j)
      for (int64_t g = 0; g < kGroup; ++g) p.scores(g, j) = score_of(&p.q(first + g, 0), p.key(j, kv_head));
    float total[kGroup];
    for (int64_t g = 0; g < kGroup; ++g)
      total[g] = softmax(static_cast<float>(p.sinks(first + g)), &p.scores(g, 0), p.context());
    float sums[kGroup][kHeadDim] = {};
    for (int64_t j = 0; j < p.context(); ++j)
      for (int64_t g = 0; g < kGroup; ++g) add_value(p.scores(g, j), p.value(j, kv_head), sums[g]);
    for (int64_t g = 0; g < kGroup; ++g)
      for (int64_t d = 0; d < kHeadDim; ++d) p.out(first + g, d) = sums[g][d] / total[g];
  }
}

}  // namespace fathom::lab::decode_attention_cpu
