#include "book/semiring_model.h"

namespace fathom::book {
namespace {

template <class S>
typename S::Value edge_in(int32_t weight);

template <>
float edge_in<PlusTimes>(int32_t weight) {
  return weight > 0 ? 1 : 0;
}
template <>
float edge_in<MinPlus>(int32_t weight) {
  return weight > 0 ? static_cast<float>(weight) : MinPlus::zero;
}
template <>
float edge_in<MaxPlus>(int32_t weight) {
  return weight > 0 ? static_cast<float>(weight) : MaxPlus::zero;
}
template <>
float edge_in<MaxTimes>(int32_t weight) {
  return static_cast<float>(weight) / 10;
}
template <>
float edge_in<MaxMin>(int32_t weight) {
  return static_cast<float>(weight);
}
template <>
uint64_t edge_in<OrAnd>(int32_t weight) {
  return weight > 0 ? OrAnd::one : OrAnd::zero;
}

double number(float value) { return value; }
double number(uint64_t bits) { return bits != 0 ? 1 : 0; }

template <class S>
void sum_in(int32_t n, const int32_t* weights, int32_t steps, bool at_most, double* sums) {
  using Value = typename S::Value;
  Value edges[kMostVertices * kMostVertices], power[kMostVertices * kMostVertices],
      sum[kMostVertices * kMostVertices], next[kMostVertices * kMostVertices];
  for (int32_t i = 0; i < n * n; ++i) {
    edges[i] = edge_in<S>(weights[i]);
    power[i] = sum[i] = i % (n + 1) == 0 ? S::one : S::zero;  // the walk of no edge
  }
  for (int32_t step = 0; step < steps; ++step) {
    product<S>(n, n, n, power, edges, next);
    for (int32_t i = 0; i < n * n; ++i) {
      power[i] = next[i];
      sum[i]   = S::add(sum[i], next[i]);
    }
  }
  for (int32_t i = 0; i < n * n; ++i) sums[i] = number(at_most ? sum[i] : power[i]);
}

template <class Do>
void with(Semiring semiring, const Do& act) {
  switch (semiring) {
    case Semiring::plus_times:
      return act(PlusTimes{});
    case Semiring::min_plus:
      return act(MinPlus{});
    case Semiring::max_plus:
      return act(MaxPlus{});
    case Semiring::max_times:
      return act(MaxTimes{});
    case Semiring::max_min:
      return act(MaxMin{});
    case Semiring::or_and:
      return act(OrAnd{});
  }
}

}  // namespace

double edge(Semiring semiring, int32_t weight) {
  double value = 0;
  with(semiring, [&]<class S>(S) { value = number(edge_in<S>(weight)); });
  return value;
}

void sum_over_walks(Semiring semiring, int32_t n, const int32_t* weights, int32_t steps, bool at_most,
                    double* sums) {
  with(semiring, [&]<class S>(S) { sum_in<S>(n, weights, steps, at_most, sums); });
}

}  // namespace fathom::book
