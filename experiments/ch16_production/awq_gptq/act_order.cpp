// code(n, k) = round(w'(n, k) / scale) + zero        w': w, and what rounding the inputs before k has lost
//
// work    T K^2 multiply-adds for the second moments, 2 K^3 / 3 for a Cholesky factor's inverse, N K^2 / 2
// idea    "before" is by falling mean square: the largest inputs are rounded first, while all others can
// still
//         make good what they lose (GPTQ's --act-order, with static groups)
#include "core/thread_pool.h"
#include "layer.h"
#include "model/gptq.h"

namespace fathom::lab::awq_gptq {

void act_order(const Layer& layer, Context& context) {
  model::Calibration calibration(layer.w.extent(1));
  calibration.add(layer.calibration_tokens());
  const auto quantized =
      model::gptq(layer.w, calibration, {.format = layer.format, .act_order = true}, context.pool);
  FATHOM_EXPECT(quantized, "the layer can be quantized");
  layer.multiply(quantized->matrix);
}

}  // namespace fathom::lab::awq_gptq
