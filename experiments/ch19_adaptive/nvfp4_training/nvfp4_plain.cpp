// NVFP4 without any of the three.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void nvfp4_plain(const Training& p, Context& context) {
  train_into(p,
             {.precision           = fathom::train::Precision::nvfp4,
              .stochastic_rounding = false,
              .hadamard            = false,
              .square_blocks       = false},
             context);
}

}  // namespace fathom::lab::nvfp4_training
