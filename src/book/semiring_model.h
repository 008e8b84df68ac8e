// Six semirings, one matrix product for all of them, and maps x -> a x + b over each. What the book's chapter
// 23 lists; the model of its semiring selector: freestanding, for it is compiled to WebAssembly too.
//
// A semiring has an addition, associative and commutative, with `zero` that changes nothing; a
// multiplication, associative, with `one` that changes nothing; a (b + c) = a b + a c and (a + b) c = a c + b
// c; and zero times anything is zero. Floats keep these laws for the maximum and the minimum, and up to
// rounding for the rest.
#pragma once

#include <stdint.h>

namespace fathom::book {

struct PlusTimes {
  using Value                 = float;
  static constexpr Value zero = 0, one = 1;
  static Value add(Value a, Value b) { return a + b; }
  static Value times(Value a, Value b) { return a * b; }
};

struct MinPlus {
  using Value                 = float;
  static constexpr Value zero = __builtin_inff(), one = 0;
  static Value add(Value a, Value b) { return a < b ? a : b; }
  static Value times(Value a, Value b) { return a + b; }
};

struct MaxPlus {
  using Value                 = float;
  static constexpr Value zero = -__builtin_inff(), one = 0;
  static Value add(Value a, Value b) { return a > b ? a : b; }
  static Value times(Value a, Value b) { return a + b; }
};

// Of numbers that are not negative.
struct MaxTimes {
  using Value                 = float;
  static constexpr Value zero = 0, one = 1;
  static Value add(Value a, Value b) { return a > b ? a : b; }
  static Value times(Value a, Value b) { return a * b; }
};

// Of numbers that are not negative.
struct MaxMin {
  using Value                 = float;
  static constexpr Value zero = 0, one = __builtin_inff();
  static Value add(Value a, Value b) { return a > b ? a : b; }
  static Value times(Value a, Value b) { return a < b ? a : b; }
};

// 64 semirings of one bit, side by side.
struct OrAnd {
  using Value                 = uint64_t;
  static constexpr Value zero = 0, one = ~uint64_t{0};
  static Value add(Value a, Value b) { return a | b; }
  static Value times(Value a, Value b) { return a & b; }
};

// out [m, n] = a [m, depth] b [depth, n], by rows without gaps; out overlaps neither.
template <class S, class Value = typename S::Value>
void product(int64_t m, int64_t depth, int64_t n, const Value* a, const Value* b, Value* __restrict__ out) {
  for (int64_t i = 0; i < m; ++i) {
    const Value* left = a + i * depth;
    Value* row        = out + i * n;
    for (int64_t j = 0; j < n; ++j) row[j] = S::zero;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < n; ++j)  // along rows of b and out
        row[j] = S::add(row[j], S::times(left[k], b[k * n + j]));
  }
}

// The map x -> a x + b. As given, it changes nothing.
template <class S>
struct Affine {
  using Value = typename S::Value;
  Value a = S::one, b = S::zero;

  Value operator()(Value x) const { return S::add(S::times(a, x), b); }
};

// First f, then g. Associative; not commutative.
template <class S>
Affine<S> then(const Affine<S>& f, const Affine<S>& g) {
  return {S::times(g.a, f.a), S::add(S::times(g.a, f.b), g.b)};
}

// ---- the widget: walks in a graph of a few vertices ----

enum class Semiring : int32_t { plus_times, min_plus, max_plus, max_times, max_min, or_and };

inline constexpr int32_t kMostVertices = 8;

// What an edge of weight 1 to 9 is in a semiring: 1 where walks are counted or sought, a tenth of the weight
// as a probability, else the weight; weight 0, no edge: zero.
double edge(Semiring semiring, int32_t weight);

// sums [n, n]: over all walks of `steps` edges from row to column, or of at most so many, the sum of the
// products of their edges; `weights` [n, n], n to kMostVertices. Of or_and: 0 or 1.
void sum_over_walks(Semiring semiring, int32_t n, const int32_t* weights, int32_t steps, bool at_most,
                    double* sums);

}  // namespace fathom::book
