#include "lab/verified_call.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

TEST(LateSamples, TwoOrOneOfTwentyProveNothing) {
  EXPECT_FALSE(doubtful_too_often(1, 1));
  EXPECT_FALSE(doubtful_too_often(2, 2));
  EXPECT_FALSE(doubtful_too_often(2, 40));
  EXPECT_FALSE(doubtful_too_often(10, 200));
}

TEST(LateSamples, WhoIsLateEachTimeOrWithNewInputsIsFoundOutInAFewSamples) {
  EXPECT_TRUE(doubtful_too_often(3, 3));
  EXPECT_TRUE(doubtful_too_often(3, 5));  // fresh inputs and repeated ones take turns
  EXPECT_TRUE(doubtful_too_often(3, 59));
  EXPECT_TRUE(doubtful_too_often(11, 200));
}

}  // namespace
}  // namespace fathom::lab
