// y = W x; ids(t) = argmax_v score(y(t, v))
//
// bytes   2 V K of weights; y written and read
// flops   2 T V K
// limit   memory bandwidth
// idea    the engine's ops: each weight once, then one pass over the logits
#include <algorithm>

#include "core/gumbel.h"
#include "model/ops.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax_cpu {

void all_logits(const Unembedding& p, Context& context) {
  if (p.rows == 0) return;
  auto* scratch = reinterpret_cast<std::byte*>(p.scratch.data());
  model::cpu_ops().linear(
      p.x, p.w, {}, kernels::Output::overwrite, p.logits,
      {.threads = &context.pool, .scratch = View<std::byte, 1>(scratch, {p.scratch.bytes()})});
  for (int64_t t = 0; t < p.rows; ++t) {
    const std::span<const float> y(&p.logits(t, 0), static_cast<size_t>(p.vocabulary));
    const model::DrawRule rule = p.rule(t);
    p.ids(t)                   = static_cast<int32_t>(rule.temperature > 0
                                                          ? gumbel_argmax(y, rule.temperature, rule.seed, rule.position)
                                                          : std::max_element(y.begin(), y.end()) - y.begin());
  }
}

}  // namespace fathom::lab::screened_argmax_cpu
