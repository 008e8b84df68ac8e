// Operands in bf16, whose exponents are those of fp32: no scales.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void bf16(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::bf16}, context);
}

}  // namespace fathom::lab::nvfp4_training
