#include "book/monoid_model.h"

namespace fathom::book {
namespace {

void set_identity(SoftmaxPair& pair) { pair = softmax_identity(); }
void set_identity(Moments& moments) { moments = {0, 0, 0}; }
void set_one(SoftmaxPair& pair, float x) { pair = softmax_of(x); }
void set_one(Moments& moments, float x) { moments = moments_of(x); }

template <typename State>
State merge_tree(const State* parts, int32_t count, MergeTree tree) {
  if (count == 0) {
    State none;
    set_identity(none);
    return none;
  }
  if (count == 1) return parts[0];
  switch (tree) {
    case MergeTree::left_to_right:
      return merge(merge_tree(parts, count - 1, tree), parts[count - 1]);
    case MergeTree::right_to_left:
      return merge(parts[0], merge_tree(parts + 1, count - 1, tree));
    case MergeTree::halves:
      break;
  }
  return merge(merge_tree(parts, count / 2, tree), merge_tree(parts + count / 2, count - count / 2, tree));
}

template <typename State>
State fold(const float* x, int32_t n, int32_t chunk, MergeTree tree, State* partials) {
  int32_t count = 0;
  for (int32_t begin = 0; begin < n; begin += chunk) {
    State part, one;
    set_identity(part);
    for (int32_t i = begin; i < begin + chunk && i < n; ++i) {
      set_one(one, x[i]);
      part = merge(part, one);
    }
    partials[count++] = part;
  }
  return merge_tree(partials, count, tree);
}

}  // namespace

double exponential(double x) {
  if (x < -745) return 0;
  if (x > 709) return __builtin_inf();
  // exp(x) = 2^k exp(r) with |r| <= ln(2) / 2, whose series ends below a double's precision after 14 terms.
  constexpr double kLn2 = 0.69314718055994530942;
  const double scale    = x / kLn2;
  const auto k          = static_cast<int32_t>(scale < 0 ? scale - 0.5 : scale + 0.5);
  const double r        = x - k * kLn2;
  double sum            = 1;
  for (int32_t i = 14; i >= 1; --i) sum = 1 + r * sum / i;
  // In two factors: 2^k alone may be no normal number.
  const int32_t half = k / 2;
  const auto power   = [](int32_t e) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(e + 1023) << 52);
  };
  return sum * power(half) * power(k - half);
}

SoftmaxPair softmax_identity() { return {.m = -__builtin_inff(), .d = 0}; }

SoftmaxPair softmax_of(float x) { return {.m = x, .d = 1}; }

SoftmaxPair merge(const SoftmaxPair& a, const SoftmaxPair& b) {
  // Two empty sides would ask for exp(-inf + inf), which is no number.
  if (a.d == 0) return b;
  if (b.d == 0) return a;
  const float m = a.m > b.m ? a.m : b.m;
  return {
      .m = m,
      .d = a.d * static_cast<float>(exponential(a.m - m)) + b.d * static_cast<float>(exponential(b.m - m))};
}

Moments moments_of(float x) { return {.n = 1, .mean = x, .m2 = 0}; }

Moments merge(const Moments& a, const Moments& b) {
  const float n = a.n + b.n;
  if (n == 0) return a;
  const float apart = b.mean - a.mean, share = b.n / n;
  return {.n = n, .mean = a.mean + apart * share, .m2 = a.m2 + b.m2 + apart * apart * a.n * share};
}

SoftmaxPair fold_chunks(const float* x, int32_t n, int32_t chunk, MergeTree tree, SoftmaxPair* partials) {
  return fold(x, n, chunk, tree, partials);
}

Moments fold_chunks(const float* x, int32_t n, int32_t chunk, MergeTree tree, Moments* partials) {
  return fold(x, n, chunk, tree, partials);
}

double denominator_in_double(const float* x, int32_t n) {
  double m = -__builtin_inf(), d = 0;
  for (int32_t i = 0; i < n; ++i) m = x[i] > m ? x[i] : m;
  for (int32_t i = 0; i < n; ++i) d += exponential(x[i] - m);
  return d;
}

}  // namespace fathom::book
