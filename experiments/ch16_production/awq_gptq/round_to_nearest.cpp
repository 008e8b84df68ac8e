// code(n, k) = round(w(n, k) / scale) + zero
//
// work    a few operations a weight; no calibration
// idea    none yet: each weight becomes the nearest of its group's 16 numbers
#include "layer.h"

namespace fathom::lab::awq_gptq {

void round_to_nearest(const Layer& layer, Context&) {
  layer.multiply(model::round_to_nearest(layer.w, layer.format));
}

}  // namespace fathom::lab::awq_gptq
