// E4M3 for inputs and weights, E5M2 for gradients, a scale for each tensor.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void fp8(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::fp8}, context);
}

}  // namespace fathom::lab::nvfp4_training
