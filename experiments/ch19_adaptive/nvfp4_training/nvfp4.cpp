// E2M1 with a scale for each 16 numbers, and all three cures: square blocks, stochastic rounding, Hadamard.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void nvfp4(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::nvfp4}, context);
}

}  // namespace fathom::lab::nvfp4_training
