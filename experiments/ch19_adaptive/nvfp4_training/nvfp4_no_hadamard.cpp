// NVFP4 without the Hadamard transform: a large number takes its block's steps.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void nvfp4_no_hadamard(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::nvfp4, .hadamard = false}, context);
}

}  // namespace fathom::lab::nvfp4_training
