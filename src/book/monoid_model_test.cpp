#include "book/monoid_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fathom::book {
namespace {

// The golden values of the book.
TEST(SoftmaxMonoid, DenominatorsOfTheBook) {
  const float x[]       = {1, 3, 2, 5};
  const double golden[] = {1, 1.135335, 1.503215, 1.203438};
  SoftmaxPair pair      = softmax_identity();
  for (int i = 0; i < 4; ++i) {
    pair = merge(pair, softmax_of(x[i]));
    EXPECT_NEAR(pair.d, golden[i], 1e-6) << i;
  }
  EXPECT_EQ(pair.m, 5);
}

TEST(SoftmaxMonoid, ExponentialIsTheLibrarys) {
  for (double x = -740; x < 709; x += 0.37) {
    const double library = std::exp(x);
    EXPECT_NEAR(exponential(x), library, library * 1e-12 + 5e-324) << x;
  }
  EXPECT_EQ(exponential(-INFINITY), 0);
  EXPECT_EQ(exponential(0), 1);
}

TEST(SoftmaxMonoid, TheIdentityChangesNothing) {
  const SoftmaxPair none = merge(softmax_identity(), softmax_identity()), some{3, 1.5f};
  EXPECT_EQ(none.d, 0);
  EXPECT_TRUE(std::isinf(none.m));
  for (const SoftmaxPair& pair : {merge(softmax_identity(), some), merge(some, softmax_identity())}) {
    EXPECT_EQ(pair.m, some.m);
    EXPECT_EQ(pair.d, some.d);
  }
}

// Any chunks and any tree give the two-pass answer but for rounding.
TEST(SoftmaxMonoid, ChunksAndTreesAgree) {
  std::vector<float> x;
  for (int i = 0; i < 61; ++i) x.push_back(static_cast<float>(20 * std::sin(1.7 * i)));
  double m = -INFINITY, d = 0;
  for (float v : x) m = std::fmax(m, v);
  for (float v : x) d += std::exp(v - m);
  EXPECT_NEAR(denominator_in_double(x.data(), 61), d, 1e-12 * d);
  for (int32_t chunk : {1, 2, 7, 60, 61, 100})
    for (MergeTree tree : {MergeTree::left_to_right, MergeTree::right_to_left, MergeTree::halves}) {
      std::vector<SoftmaxPair> partials(61);
      const SoftmaxPair whole = fold_chunks(x.data(), 61, chunk, tree, partials.data());
      EXPECT_EQ(whole.m, static_cast<float>(m));
      EXPECT_NEAR(whole.d, d, 1e-5 * d) << chunk;
    }
  SoftmaxPair nothing;
  EXPECT_EQ(fold_chunks(x.data(), 0, 4, MergeTree::halves, &nothing).d, 0);
}

// The book's exercise, and a two-pass variance.
TEST(MomentsMonoid, MergesCountsMeansAndSquares) {
  const Moments four = merge(Moments{2, 1, 2}, Moments{2, 5, 2});
  EXPECT_EQ(four.n, 4);
  EXPECT_EQ(four.mean, 3);
  EXPECT_EQ(four.m2, 20);
  std::vector<float> x;
  double mean = 0, m2 = 0;
  for (int i = 0; i < 50; ++i) x.push_back(static_cast<float>(i * i % 17));
  for (float v : x) mean += v / 50;
  for (float v : x) m2 += (v - mean) * (v - mean);
  for (int32_t chunk : {1, 3, 50}) {
    std::vector<Moments> partials(50);
    const Moments whole = fold_chunks(x.data(), 50, chunk, MergeTree::halves, partials.data());
    EXPECT_EQ(whole.n, 50);
    EXPECT_NEAR(whole.mean, mean, 1e-5 * mean);
    EXPECT_NEAR(whole.m2, m2, 1e-5 * m2);
  }
}

}  // namespace
}  // namespace fathom::book
