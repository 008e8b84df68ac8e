#include "book/roofline_model.h"

#include <gtest/gtest.h>

namespace fathom::book {
namespace {

// The golden values of the book: an H200's ridge from its datasheet, and from what was measured.
TEST(Roofline, RidgeIsPeakOverBandwidth) {
  EXPECT_NEAR(ridge({989e12, 4.8e12}), 206, 0.5);
  EXPECT_NEAR(ridge({782e12, 4.55e12}), 172, 0.5);
  EXPECT_NEAR(ridge({782e12, 3.98e12}), 196, 0.5);
}

TEST(Roofline, TheRoofBendsAtTheRidge) {
  const Ceilings some{8e9, 2e9};
  EXPECT_EQ(attainable(some, 0), 0);
  EXPECT_EQ(attainable(some, 2), 4e9);
  EXPECT_EQ(attainable(some, ridge(some)), 8e9);
  EXPECT_EQ(attainable(some, 100), 8e9);
}

TEST(Roofline, TimeIsTheSlowerOfTheTwoAndTheFixedCost) {
  const Ceilings some{8e9, 2e9};
  EXPECT_DOUBLE_EQ(time_of(some, {8e9, 2e9}, 0), 1);
  EXPECT_DOUBLE_EQ(time_of(some, {8e9, 6e9}, 0), 3);
  EXPECT_DOUBLE_EQ(time_of(some, {16e9, 2e9}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(time_of(some, {0, 0}, 0.5), 0.5);
}

// The roof and the time say the same: flops / time is what the roof allows.
TEST(Roofline, RoofAndTimeAgree) {
  const Ceilings some{7e9, 3e9};
  for (double flops : {1e6, 1e9, 1e12})
    for (double bytes : {1e5, 1e9, 1e12})
      EXPECT_NEAR(flops / time_of(some, {flops, bytes}, 0) / attainable(some, flops / bytes), 1, 1e-12);
}

TEST(Roofline, BatchAtTheRidgeIsTheFirstThatReachesIt) {
  for (const Ceilings& ceilings : {Ceilings{92e9, 31e9}, Ceilings{782e12, 4.55e12}})
    for (double in : {64.0, 1000.0, 4096.0})
      for (double element_bytes : {1.0, 2.0, 4.0}) {
        double first = 0;
        for (double batch = 1; batch <= 20000 && first == 0; ++batch) {
          const Work work = dense_layer(batch, in, 4096, element_bytes);
          if (work.flops / work.bytes >= ridge(ceilings)) first = batch;
        }
        EXPECT_EQ(batch_at_ridge(ceilings, in, 4096, element_bytes), first) << in << ", " << element_bytes;
      }
}

}  // namespace
}  // namespace fathom::book
