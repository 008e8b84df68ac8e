// ids(r) = a draw from softmax(logits(r, .) / temperature), cut to its top-p
//
// bytes   4 R V read; a row is read by several looks, the later ones from shared memory
// flops   some 40 R V
// limit   memory bandwidth. H200: 64 rows of V = 201088 are 51 MB, 11 us at 4.55 TB/s; one row: latency
// idea    the engine's op: nothing is sorted. The logit from which on tokens may come is found by cutting the
//         interval that holds it into 8 parts again and again, by a cluster of 8 blocks that has the row in
//         its shared memory
#include "choice.h"

namespace fathom::lab::token_choice {

void searched(const Choice& p, StreamRef stream) { kernels::choose_tokens(p.logits, p.rules, p.ids, stream); }

}  // namespace fathom::lab::token_choice
