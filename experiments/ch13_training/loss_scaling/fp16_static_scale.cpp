// Trained weights of a network of 16 inputs and 32 hidden units, S steps of 32 tokens
//
// bytes   the tokens, 17 numbers each; the weights stay in L1
// flops   some 3.3 k a token: forward 1.1 k, backward 2.2 k
// limit   none: what training comes to is the subject
// idea    all gradients times 2^16, which fp16 holds well
#include "training.h"

namespace fathom::lab::loss_scaling {

void fp16_static_scale(const Training& p, Context&) { train(p, Format::fp16, {.first = 0x1p16f}); }

}  // namespace fathom::lab::loss_scaling
