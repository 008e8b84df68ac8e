#include "book/roofline_model.h"

namespace fathom::book {

double ridge(const Ceilings& ceilings) { return ceilings.flops_per_s / ceilings.bytes_per_s; }

double attainable(const Ceilings& ceilings, double intensity) {
  const double by_memory = intensity * ceilings.bytes_per_s;
  return by_memory < ceilings.flops_per_s ? by_memory : ceilings.flops_per_s;
}

double time_of(const Ceilings& ceilings, const Work& work, double fixed_s) {
  const double arithmetic = work.flops / ceilings.flops_per_s;
  const double memory     = work.bytes / ceilings.bytes_per_s;
  return fixed_s + (arithmetic > memory ? arithmetic : memory);
}

Work dense_layer(double batch, double in, double out, double element_bytes) {
  return {.flops = 2 * batch * in * out, .bytes = element_bytes * (in * out + batch * (in + out))};
}

// Intensity 2 b in out / (e (in out + b (in + out))) reaches the ridge r at b = r e in out / (2 in out - r e
// (in + out)).
double batch_at_ridge(const Ceilings& ceilings, double in, double out, double element_bytes) {
  const double r    = ridge(ceilings) * element_bytes;
  const double gain = 2 * in * out - r * (in + out);
  if (!(gain > 0)) return 0;
  const double batch = __builtin_ceil(r * in * out / gain);
  return batch < 1 ? 1 : batch;
}

}  // namespace fathom::book
