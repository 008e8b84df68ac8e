#include "page_formats.h"

#include <gtest/gtest.h>

namespace fathom::lab::dynamic_quantized_cache {
namespace {

// By trial of all: the fewest pages in NVFP4, then the fewest in FP8, that fit.
PageFormats by_trial(int64_t pages, int64_t budget) {
  const int64_t older = pages > 0 ? pages - 1 : 0;
  for (int64_t fp4 = 0; fp4 <= older; ++fp4)
    for (int64_t fp8 = 0; fp4 + fp8 <= older; ++fp8) {
      const PageFormats formats{.fp4 = fp4, .fp8 = fp8, .in_bf16 = pages - fp4 - fp8};
      if (formats.bytes() <= budget) return formats;
    }
  return {.fp4 = older, .fp8 = 0, .in_bf16 = pages - older};
}

TEST(PageFormats, FitWithAsLittleRoundingAsPossible) {
  for (const int64_t pages : {0, 1, 2, 3, 17, 64})
    for (int64_t budget = 0; budget <= pages * kBf16Bytes; budget += 1024) {
      const PageFormats got = page_formats(pages, budget), want = by_trial(pages, budget);
      ASSERT_EQ(got.fp4, want.fp4) << pages << " pages, " << budget << " bytes";
      ASSERT_EQ(got.fp8, want.fp8) << pages << " pages, " << budget << " bytes";
      ASSERT_EQ(got.in_bf16, want.in_bf16) << pages << " pages, " << budget << " bytes";
    }
}

// A sequence grows within a budget that stays: no page comes back up.
TEST(PageFormats, OnlyGoDown) {
  constexpr int64_t kBudget = 20 * kBf16Bytes;
  PageFormats before;
  for (int64_t pages = 1; pages <= 60; ++pages) {
    const PageFormats now = page_formats(pages, kBudget);
    EXPECT_GE(now.fp4, before.fp4) << pages;
    EXPECT_GE(now.fp4 + now.fp8, before.fp4 + before.fp8) << pages;
    EXPECT_GE(now.in_bf16, 1);
    before = now;
  }
  EXPECT_GT(before.fp4, 0);
}

TEST(PageFormats, AllStayWhereAllFit) {
  const PageFormats all = page_formats(64, 64 * kBf16Bytes);
  EXPECT_EQ(all.fp4 + all.fp8, 0);
  EXPECT_EQ(all.in_bf16, 64);
}

}  // namespace
}  // namespace fathom::lab::dynamic_quantized_cache
