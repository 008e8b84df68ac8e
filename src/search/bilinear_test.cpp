#include "search/bilinear.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "search/flip_graph.h"
#include "search/hensel_lift.h"

namespace fathom::search {
namespace {

// As published: I to VII of Strassen 1969, entries 11, 12, 21, 22.
BilinearScheme strassen() {
  return {.shape = {2, 2, 2},
          .terms = {{{1, 0, 0, 1}, {1, 0, 0, 1}, {1, 0, 0, 1}},
                    {{0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 1, -1}},
                    {{1, 0, 0, 0}, {0, 1, 0, -1}, {0, 1, 0, 1}},
                    {{0, 0, 0, 1}, {-1, 0, 1, 0}, {1, 0, 1, 0}},
                    {{1, 1, 0, 0}, {0, 0, 0, 1}, {-1, 1, 0, 0}},
                    {{-1, 0, 1, 0}, {1, 1, 0, 0}, {0, 0, 0, 1}},
                    {{0, 1, 0, -1}, {0, 0, 1, 1}, {1, 0, 0, 0}}}};
}

std::string refusal(const BilinearScheme& scheme) {
  const Status status = verify(scheme);
  return status ? "" : status.error().message;
}

// C by the scheme, in integers.
std::vector<int64_t> by_scheme(const BilinearScheme& scheme, const std::vector<int64_t>& a,
                               const std::vector<int64_t>& b) {
  std::vector<int64_t> c(static_cast<size_t>(scheme.shape.c_size()));
  for (const BilinearTerm& term : scheme.terms) {
    int64_t left = 0, right = 0;
    for (size_t i = 0; i < a.size(); ++i) left += term.a[i] * a[i];
    for (size_t i = 0; i < b.size(); ++i) right += term.b[i] * b[i];
    for (size_t i = 0; i < c.size(); ++i) c[i] += term.c[i] * left * right;
  }
  return c;
}

std::vector<int64_t> by_definition(const ProductShape& shape, const std::vector<int64_t>& a,
                                   const std::vector<int64_t>& b) {
  const auto [n, m, p] = shape;
  std::vector<int64_t> c(static_cast<size_t>(n * p));
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j)
      for (int k = 0; k < p; ++k)
        c[static_cast<size_t>(i * p + k)] +=
            a[static_cast<size_t>(i * m + j)] * b[static_cast<size_t>(j * p + k)];
  return c;
}

void expect_products(const BilinearScheme& scheme) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<int64_t> a(static_cast<size_t>(scheme.shape.a_size())),
        b(static_cast<size_t>(scheme.shape.b_size()));
    fill_integers(a.data(), static_cast<int64_t>(a.size()), 2 * seed, -1'000'000, 1'000'000);
    fill_integers(b.data(), static_cast<int64_t>(b.size()), 2 * seed + 1, -1'000'000, 1'000'000);
    EXPECT_EQ(by_scheme(scheme, a, b), by_definition(scheme.shape, a, b)) << "seed " << seed;
  }
}

bool same(const BilinearScheme& x, const BilinearScheme& y) {
  if (x.terms.size() != y.terms.size()) return false;
  for (size_t t = 0; t < x.terms.size(); ++t)
    if (x.terms[t].a != y.terms[t].a || x.terms[t].b != y.terms[t].b || x.terms[t].c != y.terms[t].c)
      return false;
  return true;
}

TEST(Bilinear, TheSchoolbookIsAScheme) {
  for (const ProductShape& shape :
       {ProductShape{1, 1, 1}, {2, 2, 2}, {1, 3, 1}, {3, 1, 2}, {2, 3, 5}, {4, 4, 4}}) {
    const BilinearScheme scheme = schoolbook(shape);
    EXPECT_EQ(refusal(scheme), "");
    EXPECT_EQ(scheme.rank(), shape.n * shape.m * shape.p);
    EXPECT_EQ(growth(scheme), shape.m);
    EXPECT_EQ(additions(scheme), shape.n * shape.p * (shape.m - 1));
    expect_products(scheme);
  }
}

TEST(Bilinear, StrassensSchemeIsVerified) {
  EXPECT_EQ(refusal(strassen()), "");
  EXPECT_EQ(additions(strassen()), 18);
  EXPECT_EQ(growth(strassen()), 12);
  expect_products(strassen());
}

TEST(Bilinear, EachMutationOfOneCoefficientIsRefused) {
  int mutations = 0;
  for (int t = 0; t < 7; ++t)
    for (int matrix = 0; matrix < 3; ++matrix)
      for (size_t i = 0; i < 4; ++i)
        for (const int value : {-2, -1, 0, 1, 2}) {
          BilinearScheme scheme = strassen();
          BilinearTerm& term    = scheme.terms[static_cast<size_t>(t)];
          int& coefficient      = (matrix == 0 ? term.a : matrix == 1 ? term.b : term.c)[i];
          if (coefficient == value) continue;
          coefficient = value;
          ++mutations;
          EXPECT_NE(refusal(scheme), "") << "product " << t << ", matrix " << matrix << ", entry " << i;
        }
  EXPECT_EQ(mutations, 7 * 3 * 4 * 4);
}

TEST(Bilinear, AMissingOrDoubledProductIsRefused) {
  for (size_t t = 0; t < 7; ++t) {
    BilinearScheme missing = strassen(), doubled = strassen();
    missing.terms.erase(missing.terms.begin() + static_cast<std::ptrdiff_t>(t));
    doubled.terms.push_back(doubled.terms[t]);
    EXPECT_NE(refusal(missing), "");
    EXPECT_NE(refusal(doubled), "");
  }
}

// In 32 bits the four other products would vanish.
TEST(Bilinear, SumsDoNotWrap) {
  BilinearScheme scheme = schoolbook({1, 1, 1});
  for (int t = 0; t < 4; ++t) scheme.terms.push_back({{1 << 15}, {1 << 15}, {1}});
  EXPECT_NE(refusal(scheme).find("4294967297"), std::string::npos) << refusal(scheme);
}

TEST(Bilinear, ARefusalNamesWhatIsWrong) {
  BilinearScheme scheme = strassen();
  scheme.terms[0].a[0]  = 2;
  EXPECT_EQ(refusal(scheme), "A(0,0) B(0,0) has 2 in C(0,0), and not 1");
  scheme.terms[0].a[0] = (1 << 15) + 1;
  EXPECT_NE(refusal(scheme).find("product 0 has the coefficient 32769 for A"), std::string::npos);
  scheme = strassen();
  scheme.terms[3].b.pop_back();
  EXPECT_EQ(refusal(scheme), "product 3 has 3 coefficients for B, which has 4 entries");
  scheme.shape.m = 0;
  EXPECT_NE(refusal(scheme).find("each side is at least 1"), std::string::npos);
  EXPECT_NE(refusal({.shape = {1, 1, 1}, .terms = {}}), "");
  EXPECT_THROW(schoolbook({2, 0, 2}), ContractError);
}

TEST(FlipGraph, EachSeedFindsSevenProducts) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Discovery found = discover(
        {.shape = {2, 2, 2}, .target_rank = 7, .seed = seed, .flips = 10'000'000, .patience = 10'000});
    ASSERT_TRUE(found.scheme.has_value()) << "seed " << seed << ": best " << found.best_rank;
    EXPECT_EQ(found.best_rank, 7);
    EXPECT_EQ(found.scheme->rank(), 7);
    EXPECT_EQ(refusal(*found.scheme), "");
    EXPECT_GE(growth(*found.scheme),
              12);  // Strassen's is the least (Bini, Lotti, Numerische Mathematik 36, 1980)
    EXPECT_GE(additions(*found.scheme), 18);
    expect_products(*found.scheme);
  }
}

TEST(FlipGraph, LargerShapesReachTheBestKnownRanks) {
  for (const auto& [shape, rank] :
       {std::pair{ProductShape{2, 2, 3}, 11}, {{3, 2, 2}, 11}, {{2, 3, 3}, 15}, {{3, 3, 3}, 23}}) {
    const Discovery found = discover({.shape = shape, .target_rank = rank, .seed = 5, .flips = 20'000'000});
    ASSERT_TRUE(found.scheme.has_value()) << shape.n << shape.m << shape.p << ": best " << found.best_rank;
    EXPECT_EQ(found.scheme->rank(), rank);
    EXPECT_EQ(refusal(*found.scheme), "");
    for (const BilinearTerm& term : found.scheme->terms)
      for (const auto* of : {&term.a, &term.b, &term.c})
        for (const int x : *of) EXPECT_TRUE(x >= -1 && x <= 1) << x;
    expect_products(*found.scheme);
  }
}

TEST(FlipGraph, TheSameSeedTakesTheSameWalk) {
  const FlipSearch search{.shape = {2, 2, 3}, .target_rank = 11, .seed = 3, .flips = 10'000'000};
  const Discovery first = discover(search), second = discover(search);
  ASSERT_TRUE(first.scheme && second.scheme);
  EXPECT_EQ(first.flips, second.flips);
  EXPECT_TRUE(same(*first.scheme, *second.scheme));
  FlipSearch other      = search;
  other.seed            = 4;
  const Discovery third = discover(other);
  ASSERT_TRUE(third.scheme);
  EXPECT_FALSE(same(*first.scheme, *third.scheme));
}

// No scheme of rank 6 exists (Winograd, Linear Algebra and its Applications 4, 1971).
TEST(FlipGraph, ABudgetEndsTheSearch) {
  const Discovery found = discover(
      {.shape = {2, 2, 2}, .target_rank = 6, .flips = 100'000, .flips_of_a_walk = 30'000, .patience = 1'000});
  EXPECT_FALSE(found.scheme.has_value());
  EXPECT_EQ(found.best_rank, 7);
  EXPECT_EQ(found.flips, 100'000);
  EXPECT_EQ(found.walks, 4);
  const Discovery none = discover({.shape = {2, 2, 2}, .target_rank = 7, .flips = 0});
  EXPECT_FALSE(none.scheme.has_value());
  EXPECT_EQ(none.best_rank, 8);
}

TEST(FlipGraph, ShapesWithoutASavingKeepTheSchoolbook) {
  for (const ProductShape& shape : {ProductShape{1, 1, 1}, {1, 1, 5}, {3, 1, 2}, {1, 4, 1}}) {
    const int rank        = shape.n * shape.m * shape.p;
    const Discovery found = discover({.shape = shape, .target_rank = rank, .flips = 0});
    ASSERT_TRUE(found.scheme.has_value());
    EXPECT_EQ(refusal(*found.scheme), "");
  }
  EXPECT_FALSE(discover({.shape = {1, 2, 2}, .target_rank = 3, .flips = 50'000}).scheme.has_value());
  EXPECT_EQ(discover({.shape = {1, 1, 1}, .target_rank = 1, .flips = 10}).best_rank, 1);
}

TEST(FlipGraph, BadInputIsAContractError) {
  EXPECT_THROW(discover({.shape = {0, 2, 2}, .target_rank = 1, .flips = 1}), ContractError);
  EXPECT_THROW(discover({.shape = {2, -2, 2}, .target_rank = 1, .flips = 1}), ContractError);
  EXPECT_THROW(discover({.shape = {9, 9, 2}, .target_rank = 1, .flips = 1}), ContractError);
  EXPECT_THROW(discover({.shape = {2, 2, 2}, .target_rank = 0, .flips = 1}), ContractError);
  EXPECT_THROW(discover({.shape = {2, 2, 2}, .target_rank = 7, .flips = -1}), ContractError);
  EXPECT_THROW(discover({.shape = {2, 2, 2}, .target_rank = 7, .flips = 1, .patience = 0}), ContractError);
}

BinaryScheme modulo_2(const BilinearScheme& scheme) {
  BinaryScheme binary{.shape = scheme.shape, .terms = {}};
  const auto bits = [](const std::vector<int>& of) {
    uint64_t word = 0;
    for (size_t i = 0; i < of.size(); ++i) word |= static_cast<uint64_t>(of[i] & 1) << i;
    return word;
  };
  for (const BilinearTerm& term : scheme.terms)
    binary.terms.push_back({bits(term.a), bits(term.b), bits(term.c)});
  return binary;
}

TEST(HenselLift, SignsComeBack) {
  for (const BilinearScheme& scheme : {strassen(), schoolbook({2, 3, 4})}) {
    const auto lifted = hensel_lift(modulo_2(scheme), 1, 64);
    ASSERT_TRUE(lifted.has_value());
    EXPECT_EQ(refusal(*lifted), "");
    const BinaryScheme again = modulo_2(*lifted), before = modulo_2(scheme);
    for (size_t t = 0; t < before.terms.size(); ++t) {
      EXPECT_EQ(again.terms[t].a, before.terms[t].a);
      EXPECT_EQ(again.terms[t].b, before.terms[t].b);
      EXPECT_EQ(again.terms[t].c, before.terms[t].c);
    }
  }
}

TEST(HenselLift, WhatIsNoSchemeHasNoLift) {
  for (size_t t = 0; t < 7; ++t) {
    BinaryScheme broken = modulo_2(strassen());
    broken.terms[t].b ^= 1;
    EXPECT_FALSE(hensel_lift(broken, 1, 64).has_value());
  }
}

}  // namespace
}  // namespace fathom::search
