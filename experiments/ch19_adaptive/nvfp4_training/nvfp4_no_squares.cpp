// NVFP4 with blocks of weights along the sum: the backward pass has other weights than the forward pass.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void nvfp4_no_squares(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::nvfp4, .square_blocks = false}, context);
}

}  // namespace fathom::lab::nvfp4_training
