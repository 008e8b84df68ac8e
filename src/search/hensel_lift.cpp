#include "search/hensel_lift.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/splitmix64.h"

namespace fathom::search {
namespace {

// A row of a linear system over Z/2: the bits of the unknowns, then the right side.
class Row {
 public:
  explicit Row(size_t bits) : words_((bits + 63) / 64) {}
  void flip(size_t bit) { words_[bit / 64] ^= uint64_t{1} << bit % 64; }
  bool at(size_t bit) const { return words_[bit / 64] >> bit % 64 & 1; }
  void add(const Row& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] ^= other.words_[w];
  }
  // The lowest bit that is set; the number of bits of all words if none is.
  size_t first() const {
    for (size_t w = 0; w < words_.size(); ++w)
      if (words_[w]) return w * 64 + static_cast<size_t>(std::countr_zero(words_[w]));
    return words_.size() * 64;
  }

 private:
  std::vector<uint64_t> words_;
};

// Gauss-Jordan elimination, row by row.
class LinearSystem {
 public:
  explicit LinearSystem(size_t unknowns) : unknowns_(unknowns) {}

  // False where the equation contradicts those before it.
  bool add(Row row) {
    for (const auto& [pivot, other] : rows_)
      if (row.at(pivot)) row.add(other);
    const size_t pivot = row.first();
    if (pivot > unknowns_) return true;    // 0 = 0
    if (pivot == unknowns_) return false;  // 0 = 1
    for (auto& [_, other] : rows_)
      if (other.at(pivot)) other.add(row);
    rows_.emplace_back(pivot, std::move(row));
    return true;
  }

  // The solution in which the unknowns without a pivot are as `values` has them.
  void solve(std::vector<char>& values) const {
    std::vector<char> pivots(unknowns_);
    for (const auto& [pivot, _] : rows_) pivots[pivot] = 1;
    for (const auto& [pivot, row] : rows_) {
      bool value = row.at(unknowns_);
      for (size_t u = 0; u < unknowns_; ++u)
        if (!pivots[u] && row.at(u)) value ^= values[u] != 0;
      values[pivot] = value;
    }
  }

 private:
  size_t unknowns_;
  std::vector<std::pair<size_t, Row>> rows_;
};

}  // namespace

std::optional<BilinearScheme> hensel_lift(const BinaryScheme& scheme, uint64_t seed, int tries) {
  const auto [n, m, p]   = scheme.shape;
  const size_t a_size    = static_cast<size_t>(scheme.shape.a_size()),
               b_size    = static_cast<size_t>(scheme.shape.b_size()),
               c_size    = static_cast<size_t>(scheme.shape.c_size());
  const size_t of_a_term = a_size + b_size + c_size;
  const size_t unknowns  = of_a_term * scheme.terms.size();  // a sign each; those of zeros are in no equation

  LinearSystem system(unknowns);
  for (size_t a = 0; a < a_size; ++a)
    for (size_t b = 0; b < b_size; ++b)
      for (size_t c = 0; c < c_size; ++c) {
        const size_t sm = static_cast<size_t>(m), sp = static_cast<size_t>(p);
        const bool wanted = a / sm == c / sp && a % sm == b / sp && b % sp == c % sp;
        Row row(unknowns + 1);
        int64_t products = 0;
        for (size_t t = 0; t < scheme.terms.size(); ++t) {
          const BinaryTerm& term = scheme.terms[t];
          if (!(term.a >> a & term.b >> b & term.c >> c & 1)) continue;
          ++products;
          row.flip(t * of_a_term + a);
          row.flip(t * of_a_term + a_size + b);
          row.flip(t * of_a_term + a_size + b_size + c);
        }
        // sum of (1 - 2 e) = wanted modulo 4, where e is the sum of three signs
        const int64_t excess = products - int64_t{wanted};
        if (excess % 2 != 0) return std::nullopt;  // no scheme over Z/2
        if (excess / 2 % 2 != 0) row.flip(unknowns);
        if (!system.add(std::move(row))) return std::nullopt;
      }

  std::vector<char> signs(unknowns);
  for (int attempt = 0; attempt < tries; ++attempt) {
    for (size_t u = 0; u < unknowns; ++u)
      signs[u] =
          attempt == 0
              ? 0
              : splitmix64(seed + (static_cast<uint64_t>(attempt) * unknowns + u) * kSplitmix64Increment) & 1;
    system.solve(signs);
    BilinearScheme lifted{.shape = scheme.shape, .terms = {}};
    const char* sign = signs.data();
    for (const BinaryTerm& term : scheme.terms) {
      const auto signed_bits = [&](uint64_t bits, size_t size) {
        std::vector<int> coefficients(size);
        for (size_t i = 0; i < size; ++i, ++sign)
          if (bits >> i & 1) coefficients[i] = *sign ? -1 : 1;
        return coefficients;
      };
      BilinearTerm of_lifted;
      of_lifted.a = signed_bits(term.a, a_size);
      of_lifted.b = signed_bits(term.b, b_size);
      of_lifted.c = signed_bits(term.c, c_size);
      lifted.terms.push_back(std::move(of_lifted));
    }
    if (verify(lifted)) return lifted;
  }
  return std::nullopt;
}

}  // namespace fathom::search
