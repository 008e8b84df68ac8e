// What semiring_selector.js calls: a graph's weights, and the sums over its walks in one semiring.
#include "book/semiring_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

int32_t weights[kMostVertices * kMostVertices];
double sums[kMostVertices * kMostVertices];

}  // namespace

WASM_EXPORT(put) void put(int32_t index, int32_t weight) {
  if (index >= 0 && index < kMostVertices * kMostVertices) weights[index] = weight;
}

WASM_EXPORT(sum_up) void sum_up(int32_t semiring, int32_t n, int32_t steps, int32_t at_most) {
  sum_over_walks(static_cast<Semiring>(semiring), n, weights, steps, at_most != 0, sums);
}

WASM_EXPORT(sum_at) double sum_at(int32_t index) { return sums[index]; }
WASM_EXPORT(edge_of) double edge_of(int32_t semiring, int32_t weight) {
  return edge(static_cast<Semiring>(semiring), weight);
}
