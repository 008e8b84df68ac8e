// NVFP4 whose gradients are rounded to nearest: small ones are lost in every step.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void nvfp4_nearest(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::nvfp4, .stochastic_rounding = false}, context);
}

}  // namespace fathom::lab::nvfp4_training
