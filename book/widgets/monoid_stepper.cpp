// What monoid_stepper.js calls: up to 64 numbers, the states of their chunks and of the whole.
#include "book/monoid_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

constexpr int32_t kMost = 64;

float numbers[kMost];
SoftmaxPair pairs[kMost + 1];  // the last: the whole
Moments moments[kMost + 1];

}  // namespace

WASM_EXPORT(put) void put(int32_t i, float x) {
  if (i >= 0 && i < kMost) numbers[i] = x;
}

// Folds the first n numbers both ways of counting; chunk is at least 1.
WASM_EXPORT(fold_first) void fold_first(int32_t n, int32_t chunk, int32_t tree) {
  pairs[kMost]   = fold_chunks(numbers, n, chunk, static_cast<MergeTree>(tree), pairs);
  moments[kMost] = fold_chunks(numbers, n, chunk, static_cast<MergeTree>(tree), moments);
}

// Field 0 or 1 of a softmax pair, or 0 to 2 of moments; index 64 is the whole.
WASM_EXPORT(softmax_field) float softmax_field(int32_t index, int32_t field) {
  return field == 0 ? pairs[index].m : pairs[index].d;
}

WASM_EXPORT(moments_field) float moments_field(int32_t index, int32_t field) {
  return field == 0 ? moments[index].n : field == 1 ? moments[index].mean : moments[index].m2;
}

WASM_EXPORT(exact_denominator) double exact_denominator(int32_t n) {
  return denominator_in_double(numbers, n);
}
