#include "scheme_product.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/expect.h"
#include "search/flip_graph.h"

namespace fathom::lab::bilinear_discovery {
namespace {

constexpr uint64_t kSearches = 32;

}  // namespace

search::BilinearScheme discover_seven_products() {
  std::optional<search::BilinearScheme> best;
  const auto price = [](const search::BilinearScheme& scheme) {
    return std::tuple(search::growth(scheme), search::additions(scheme));
  };
  for (uint64_t seed = 0; seed < kSearches; ++seed) {
    auto found = search::discover(
        {.shape = {2, 2, 2}, .target_rank = 7, .seed = seed, .flips = 1'000'000, .patience = 10'000});
    if (found.scheme && (!best || price(*found.scheme) < price(*best))) best = std::move(found.scheme);
  }
  FATHOM_EXPECT(best && search::growth(*best) <= 12,
                "the search has always found a scheme as good as Strassen's");
  return *best;
}

SchemeProduct::SchemeProduct(const search::BilinearScheme& scheme, int levels) : levels_(levels) {
  const Status exact = search::verify(scheme);
  FATHOM_EXPECT(exact.has_value(), exact.error().message);
  FATHOM_EXPECT(scheme.shape.n == 2 && scheme.shape.m == 2 && scheme.shape.p == 2,
                "a matrix has 2 x 2 blocks");
  std::array<bool, 4> reached{};
  for (const search::BilinearTerm& from : scheme.terms) {
    const auto coefficient = [](int x) {
      FATHOM_EXPECT(x >= -1 && x <= 1, "blocks are added and subtracted, not scaled");
      return static_cast<float>(x);
    };
    Term term;
    for (int q = 0; q < 4; ++q) {
      const auto i = static_cast<size_t>(q);
      if (from.a[i]) term.a.push_back({q, coefficient(from.a[i])});
      if (from.b[i]) term.b.push_back({q, coefficient(from.b[i])});
      if (from.c[i]) term.c.push_back({q, coefficient(from.c[i]), !std::exchange(reached[i], true)});
    }
    terms_.push_back(std::move(term));
  }
}

Block<const float> SchemeProduct::sum(const std::vector<Signed>& blocks, Block<const float> of, int64_t h,
                                      float* to, float& sign) {
  if (blocks.size() == 1) {
    sign *= blocks[0].sign;
    return of.quarter(blocks[0].block, h);
  }
  for (int64_t i = 0; i < h; ++i) {
    float* const row         = to + i * h;
    const auto row_of        = [&](const Signed& s) { return of.quarter(s.block, h).at + i * of.row; };
    const float *const first = row_of(blocks[0]), *const second = row_of(blocks[1]);
    const float of_first = blocks[0].sign, of_second = blocks[1].sign;
    for (int64_t j = 0; j < h; ++j) row[j] = of_first * first[j] + of_second * second[j];
    for (size_t s = 2; s < blocks.size(); ++s) {  // the row is in L1
      const float* const next = row_of(blocks[s]);
      const float of_next     = blocks[s].sign;
      for (int64_t j = 0; j < h; ++j) row[j] += of_next * next[j];
    }
  }
  return {to, h};
}

void SchemeProduct::multiply(int levels, int64_t n, float alpha, Block<const float> a, Block<const float> b,
                             bool add, Block<float> c, float* blocks) const {
  if (levels == 0 || n < 2) return sgemm_(n, n, n, alpha, a.at, a.row, b.at, b.row, add, c.at, c.row);
  const int64_t h = n / 2, even = 2 * h;
  float *const left = blocks, *const right = left + h * h, *const product = right + h * h;
  float* const below = product + h * h;
  for (const Term& term : terms_) {
    float sign                    = alpha;
    const Block<const float> of_a = sum(term.a, a, h, left, sign), of_b = sum(term.b, b, h, right, sign);
    if (term.c.size() == 1) {
      const auto [block, of_block, first] = term.c[0];
      multiply(levels - 1, h, sign * of_block, of_a, of_b, add || !first, c.quarter(block, h), below);
      continue;
    }
    multiply(levels - 1, h, 1, of_a, of_b, false, {product, h}, below);
    for (int64_t i = 0; i < h; ++i)
      for (const auto& [block, of_block, first] : term.c) {  // the row of the product is in L1 for the second
        const float* const from = product + i * h;
        float* const row        = c.quarter(block, h).at + i * c.row;
        const float factor      = sign * of_block;
        if (first && !add)
          for (int64_t j = 0; j < h; ++j) row[j] = factor * from[j];
        else
          for (int64_t j = 0; j < h; ++j) row[j] += factor * from[j];
      }
  }
  if (n == even) return;
  const float *const last_column = a.at + even, *const last_row = b.at + even * b.row;
  sgemm_(even, even, 1, alpha, last_column, a.row, last_row, b.row, true, c.at, c.row);
  sgemm_(even, 1, n, alpha, a.at, a.row, b.at + even, b.row, add, c.at + even, c.row);
  sgemm_(1, n, n, alpha, a.at + even * a.row, a.row, b.at, b.row, add, c.at + even * c.row, c.row);
}

}  // namespace fathom::lab::bilinear_discovery
