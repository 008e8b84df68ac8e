// Online softmax as a monoid: pairs (m, d) of a maximum and a sum of exponentials below it. The model of the
// book's monoid stepper; freestanding, for it is compiled to WebAssembly too
//.
#pragma once

#include <stdint.h>

namespace fathom::book {

// Stands for a multiset of numbers x: m is their maximum, d the sum of exp(x - m).
struct SoftmaxPair {
  float m;
  float d;
};

// The pair of no number: merging with it changes nothing.
SoftmaxPair softmax_identity();

SoftmaxPair softmax_of(float x);

// The pair of two multisets together. Associative and commutative but for rounding.
SoftmaxPair merge(const SoftmaxPair& a, const SoftmaxPair& b);

// The count of numbers, their mean and the sum of squared distances from it (Chan, Golub and LeVeque, 1979).
struct Moments {
  float n;
  float mean;
  float m2;
};

Moments moments_of(float x);
Moments merge(const Moments& a, const Moments& b);

enum class MergeTree : int32_t { left_to_right, right_to_left, halves };

// Folds each `chunk` numbers from the left into a pair, writes these to `partials`, which has room for ceil(n
// / chunk), and merges them by the tree.
SoftmaxPair fold_chunks(const float* x, int32_t n, int32_t chunk, MergeTree tree, SoftmaxPair* partials);
Moments fold_chunks(const float* x, int32_t n, int32_t chunk, MergeTree tree, Moments* partials);

// exp to double precision, without a library.
double exponential(double x);

// The sum of exp(x - max) in double precision, in two passes: what a fold's d should be.
double denominator_in_double(const float* x, int32_t n);

}  // namespace fathom::book
