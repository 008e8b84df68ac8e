#include "model/yarn.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom::model {
namespace {

// gpt-oss's frequencies, computed independently in double.
TEST(Yarn, GptOss) {
  const RopeFrequencies rope = rope_frequencies(
      {.theta = 150000, .factor = 32, .beta_fast = 32, .beta_slow = 1, .original_context = 4096}, 64);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  EXPECT_FLOAT_EQ(rope.concentration, 1.3465735902799727f);
  const struct {
    size_t k;
    double frequency;
  } known[] = {{0, 1.0},
               {1, 0.6890443058881633},
               {8, 0.050813274815461475},
               {9, 0.03170569618466377},
               {12, 0.006794959489732219},
               {16, 4.5648391949e-4},
               {17, 1.2931870125e-4},
               {18, 3.8308812374e-5},
               {24, 4.0999784818e-6},
               {31, 3.0235114281e-7}};
  for (const auto& [k, frequency] : known) EXPECT_FLOAT_EQ(rope.inv_freq[k], static_cast<float>(frequency));
}

TEST(Yarn, WithoutExtensionItIsPlainRope) {
  const RopeFrequencies rope = rope_frequencies({.theta = 10000, .factor = 1, .original_context = 4096}, 8);
  ASSERT_EQ(rope.inv_freq.size(), 4u);
  EXPECT_EQ(rope.concentration, 1);
  for (size_t k = 0; k < 4; ++k)
    EXPECT_FLOAT_EQ(rope.inv_freq[k], static_cast<float>(std::pow(10.0, -static_cast<double>(k))));
}

// Rounding moves the ramp's ends to 8 and 18: pair 9 is at 0.1 of it and pair 17 at 0.9.
TEST(Yarn, TruncateRoundsTheRamp) {
  Rope rope{.theta = 150000, .factor = 32, .beta_fast = 32, .beta_slow = 1, .original_context = 4096};
  rope.truncate           = true;
  const RopeFrequencies f = rope_frequencies(rope, 64);
  const auto plain        = [](double k) { return std::pow(150000.0, -k / 32); };
  EXPECT_FLOAT_EQ(f.inv_freq[8], static_cast<float>(plain(8)));
  EXPECT_FLOAT_EQ(f.inv_freq[9], static_cast<float>(plain(9) * (0.9 + 0.1 / 32)));
  EXPECT_FLOAT_EQ(f.inv_freq[17], static_cast<float>(plain(17) * (0.1 + 0.9 / 32)));
  EXPECT_FLOAT_EQ(f.inv_freq[18], static_cast<float>(plain(18) / 32));
}

}  // namespace
}  // namespace fathom::model
