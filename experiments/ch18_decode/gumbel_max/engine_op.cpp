// `screened` in the engine's op, src/kernels/sampling/sample.h, which also knows rows with other rules.
#include "gumbel_max.h"

namespace fathom::lab::gumbel_max {

void engine_op(const Draw& p, StreamRef stream) {
  kernels::sample_tokens({p.logits.data(), {p.rows, p.vocabulary}}, p.rules, p.ids, stream);
}

}  // namespace fathom::lab::gumbel_max
