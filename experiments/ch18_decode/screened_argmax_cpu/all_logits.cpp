// y = W x; ids(t) = argmax_v score(y(t, v))
//
// bytes   2 V K of weights; y written and read
// flops   2 T V K
// limit   memory bandwidth
// idea    the engine's ops: each weight once, then one pass over the logits
#include "model/ops.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax_cpu {

void all_logits(const Unembedding& p, Context& context) {
  if (p.rows == 0) return;
  model::cpu_ops().linear(p.x, p.w, {}, kernels::Output::overwrite, p.logits, p.execution(context));
  p.choose();
}

}  // namespace fathom::lab::screened_argmax_cpu
