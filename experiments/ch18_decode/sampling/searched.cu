// ids(r) = a draw from softmax(logits(r, .) / temperature), cut to its top-p
//
// bytes   4 R V read from device memory twice; the later looks read shared memory
// flops   some 40 R V
// limit   memory bandwidth. H200: 64 rows of V = 201088 are 51 MB, 11 us at 4.55 TB/s; one row: latency
// idea    the engine's op, kernels/sampling/sample.cu. It is `cluster` with what serving adds: after each
//         look only the tokens in the interval stay in shared memory, CTAs exchange totals by st.async, and a
//         rule may have top-k, top-p and min-p, or be greedy
#include "sampling.h"

namespace fathom::lab::sampling {

void searched(const Choice& p, StreamRef stream) { kernels::sample_tokens(p.logits, p.rules, p.ids, stream); }

}  // namespace fathom::lab::sampling
