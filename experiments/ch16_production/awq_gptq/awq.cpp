// code(n, k) = round(w(n, k) s(k) / scale) + zero        s(k) = (mean |x(k)|)^a
//
// work    T K^2 multiply-adds for the second moments, N K^2 for each of the 20 a that are tried
// idea    the inputs with large activations get finer steps, at the cost of the others in their group. The a
//         that errs least on the calibration tokens is taken, then limits of each group that err less still
//         (Lin et al., "AWQ", arXiv 2306.00978)
#include "model/awq.h"
#include "core/thread_pool.h"
#include "layer.h"

namespace fathom::lab::awq_gptq {

void awq(const Layer& layer, Context& context) {
  model::Calibration calibration(layer.w.extent(1));
  calibration.add(layer.calibration_tokens());
  const auto quantized = model::awq(layer.w, calibration, {.format = layer.format}, context.pool);
  FATHOM_EXPECT(quantized, "the layer can be quantized");
  layer.multiply(quantized->matrix);
}

}  // namespace fathom::lab::awq_gptq
