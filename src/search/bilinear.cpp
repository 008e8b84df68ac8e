#include "search/bilinear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/expect.h"

namespace fathom::search {
namespace {

// A product of three coefficients and a sum of kMostTerms of them stay below 2^63.
constexpr int kLargestCoefficient = 1 << 15;
constexpr size_t kMostTerms       = 1 << 16;

int nonzeros(const std::vector<int>& coefficients) {
  return static_cast<int>(
      std::count_if(coefficients.begin(), coefficients.end(), [](int x) { return x != 0; }));
}

int64_t sum_of_magnitudes(const std::vector<int>& coefficients) {
  int64_t sum = 0;
  for (const int x : coefficients) sum += std::abs(x);
  return sum;
}

Status well_formed(const BilinearScheme& scheme) {
  const ProductShape& s = scheme.shape;
  if (s.n < 1 || s.m < 1 || s.p < 1)
    return Error{
        fmt::format("a scheme has the shape {}x{} times {}x{}; each side is at least 1", s.n, s.m, s.m, s.p)};
  if (scheme.terms.size() > kMostTerms)
    return Error{
        fmt::format("a scheme has {} products; at most {} are verified", scheme.terms.size(), kMostTerms)};
  for (size_t t = 0; t < scheme.terms.size(); ++t) {
    const auto refuse = [&](char name, const std::vector<int>& of, int wanted) -> Status {
      if (static_cast<int>(of.size()) != wanted)
        return Error{fmt::format("product {} has {} coefficients for {}, which has {} entries", t, of.size(),
                                 name, wanted)};
      for (const int x : of)
        if (x < -kLargestCoefficient || x > kLargestCoefficient)
          return Error{
              fmt::format("product {} has the coefficient {} for {}; at most {} can be verified exactly", t,
                          x, name, kLargestCoefficient)};
      return Ok{};
    };
    const BilinearTerm& term = scheme.terms[t];
    if (const Status a = refuse('A', term.a, s.a_size()); !a) return a;
    if (const Status b = refuse('B', term.b, s.b_size()); !b) return b;
    if (const Status c = refuse('C', term.c, s.c_size()); !c) return c;
  }
  return Ok{};
}

}  // namespace

BilinearScheme schoolbook(ProductShape shape) {
  FATHOM_EXPECT(shape.n >= 1 && shape.m >= 1 && shape.p >= 1, "a matrix product has sides of at least 1");
  BilinearScheme scheme{.shape = shape, .terms = {}};
  for (int i = 0; i < shape.n; ++i)
    for (int k = 0; k < shape.p; ++k)
      for (int j = 0; j < shape.m; ++j) {
        BilinearTerm term{.a = std::vector<int>(static_cast<size_t>(shape.a_size())),
                          .b = std::vector<int>(static_cast<size_t>(shape.b_size())),
                          .c = std::vector<int>(static_cast<size_t>(shape.c_size()))};
        term.a[static_cast<size_t>(i * shape.m + j)] = 1;
        term.b[static_cast<size_t>(j * shape.p + k)] = 1;
        term.c[static_cast<size_t>(i * shape.p + k)] = 1;
        scheme.terms.push_back(std::move(term));
      }
  return scheme;
}

Status verify(const BilinearScheme& scheme) {
  if (const Status formed = well_formed(scheme); !formed) return formed;
  const auto [n, m, p] = scheme.shape;
  for (int a = 0; a < n * m; ++a)
    for (int b = 0; b < m * p; ++b)
      for (int c = 0; c < n * p; ++c) {
        int64_t sum = 0;
        for (const BilinearTerm& term : scheme.terms)
          sum += int64_t{term.a[static_cast<size_t>(a)]} * term.b[static_cast<size_t>(b)] *
                 term.c[static_cast<size_t>(c)];
        const bool wanted = a / m == c / p && a % m == b / p && b % p == c % p;
        if (sum != int64_t{wanted})
          return Error{fmt::format("A({},{}) B({},{}) has {} in C({},{}), and not {}", a / m, a % m, b / p,
                                   b % p, sum, c / p, c % p, int{wanted})};
      }
  return Ok{};
}

int additions(const BilinearScheme& scheme) {
  int sum = -scheme.shape.c_size();  // the first product that reaches an entry of C is stored, not added
  for (const BilinearTerm& term : scheme.terms)
    sum += std::max(0, nonzeros(term.a) - 1) + std::max(0, nonzeros(term.b) - 1) + nonzeros(term.c);
  return sum;
}

int64_t growth(const BilinearScheme& scheme) {
  int64_t largest = 0;
  for (size_t c = 0; c < static_cast<size_t>(scheme.shape.c_size()); ++c) {
    int64_t sum = 0;
    for (const BilinearTerm& term : scheme.terms)
      sum += std::abs(term.c[c]) * sum_of_magnitudes(term.a) * sum_of_magnitudes(term.b);
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace fathom::search
