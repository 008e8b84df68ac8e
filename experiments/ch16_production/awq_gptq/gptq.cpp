// code(n, k) = round(w'(n, k) / scale) + zero        w': w, and what rounding the inputs before k has lost
//
// work    T K^2 multiply-adds for the second moments, 2 K^3 / 3 for a Cholesky factor's inverse, N K^2 / 2
// idea    inputs are correlated, so that later weights can make good what earlier ones lost (Frantar et al.,
//         "GPTQ", arXiv 2210.17323)
#include "model/gptq.h"
#include "core/thread_pool.h"
#include "layer.h"

namespace fathom::lab::awq_gptq {

void gptq(const Layer& layer, Context& context) {
  model::Calibration calibration(layer.w.extent(1));
  calibration.add(layer.calibration_tokens());
  const auto quantized = model::gptq(layer.w, calibration, {.format = layer.format}, context.pool);
  FATHOM_EXPECT(quantized, "the layer can be quantized");
  layer.multiply(quantized->matrix);
}

}  // namespace fathom::lab::awq_gptq
