// E4M3 everywhere, a power of two for each 32 numbers along the sum.
#include "training.h"

namespace fathom::lab::nvfp4_training {

void mxfp8(const Training& p, Context& context) {
  train_into(p, {.precision = fathom::train::Precision::mxfp8}, context);
}

}  // namespace fathom::lab::nvfp4_training
