// Trained weights of a network of 16 inputs and 32 hidden units, S steps of 32 tokens
//
// bytes   the tokens, 17 numbers each; the weights stay in L1
// flops   some 3.3 k a token: forward 1.1 k, backward 2.2 k
// limit   none: what training comes to is the subject
// idea    the scale is found: halved where a gradient overflows, and doubled after 32 good steps
#include "training.h"

namespace fathom::lab::loss_scaling {

void fp16_dynamic_scale(const Training& p, Context&) {
  train(p, Format::fp16, {.first = 0x1p32f, .growth_interval = 32});
}

}  // namespace fathom::lab::loss_scaling
