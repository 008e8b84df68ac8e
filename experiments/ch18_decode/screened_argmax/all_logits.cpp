// y = W x; ids(t) = argmax_v score(y(t, v))
//
// bytes   2 V K of weights; y written and read
// flops   2 T V K
// limit   memory bandwidth
// idea    the engine's ops: each weight once, from memory straight into the tensor cores' fragments; then one
//         pass over the logits
#include "kernels/gemm/linear_gpu.h"
#include "kernels/sampling/sample.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax {

void all_logits(const Unembedding& p, StreamRef stream) {
  if (p.rows == 0) return;
  kernels::linear(p.x, p.weights.packed(p.memory.data()), p.logits, stream);
  kernels::sample_tokens(View<const float, 2>(p.logits), p.rules, p.ids, stream);
}

}  // namespace fathom::lab::screened_argmax
