// Trained weights of a network of 16 inputs and 32 hidden units, S steps of 32 tokens
//
// bytes   the tokens, 17 numbers each; the weights stay in L1
// flops   some 3.3 k a token: forward 1.1 k, backward 2.2 k
// limit   none: what training comes to is the subject
// idea    as many exponents as fp32 has: nothing to scale, but 8 bits of precision for 11
#include "training.h"

namespace fathom::lab::loss_scaling {

void bf16(const Training& p, Context&) { train(p, Format::bf16, {}); }

}  // namespace fathom::lab::loss_scaling
