// ids(t) = argmax_v score((W x)(t, v)), without all of W
//
// bytes   1.06 V K of the int8 copy; of W the rows that may win
// flops   2 T V K, in integers
// limit   memory bandwidth
// idea    the engine's way, model/unembedding_screen.h: the copy bounds every score, and what cannot reach
// the
//         best lower bound is not computed
#include <memory>
#include <vector>

#include "core/gumbel.h"
#include "model/ops.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax_cpu {

// w is the same at every call (unembedding.h), so that the copy may be made of this one.
Launch<Unembedding> screened(const Unembedding& prepared, Context& context) {
  const auto screen = std::make_shared<model::UnembeddingScreen>(prepared.w, context.pool);
  return [screen](const Unembedding& p, Context& context) {
    if (p.rows == 0) return;
    std::vector<model::DrawRule> rules;
    for (int64_t t = 0; t < p.rows; ++t) rules.push_back(p.rule(t));
    screen->logits(model::cpu_ops(), p.x, rules, p.logits, p.execution(context));
    p.choose();
  };
}

}  // namespace fathom::lab::screened_argmax_cpu
