// What roofline_explorer.js calls.
#include "book/roofline_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

WASM_EXPORT(ridge_of) double ridge_of(double peak, double bandwidth) { return ridge({peak, bandwidth}); }

WASM_EXPORT(roof) double roof(double peak, double bandwidth, double intensity) {
  return attainable({peak, bandwidth}, intensity);
}

WASM_EXPORT(seconds)
double seconds(double peak, double bandwidth, double flops, double bytes, double fixed_s) {
  return time_of({peak, bandwidth}, {flops, bytes}, fixed_s);
}

WASM_EXPORT(layer_flops) double layer_flops(double batch, double in, double out, double element_bytes) {
  return dense_layer(batch, in, out, element_bytes).flops;
}

WASM_EXPORT(layer_bytes) double layer_bytes(double batch, double in, double out, double element_bytes) {
  return dense_layer(batch, in, out, element_bytes).bytes;
}

WASM_EXPORT(layer_batch_at_ridge)
double layer_batch_at_ridge(double peak, double bandwidth, double in, double out, double element_bytes) {
  return batch_at_ridge({peak, bandwidth}, in, out, element_bytes);
}
