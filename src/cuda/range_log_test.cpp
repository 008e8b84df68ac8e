#include "cuda/range_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "cuda/nvtx_range.h"

namespace fathom {
namespace {

TEST(RangeLog, HoldsTheRangesThatOpenAndCloseWhileItIsOpen) {
  const NvtxRange before("before");
  open_range_log();
  auto across = std::make_unique<NvtxRange>("across the end");
  {
    const NvtxRange step("step");
    const NvtxRange inner("inner");
    std::thread([] { const NvtxRange other("other thread"); }).join();
  }
  const auto ranges = close_range_log();
  across.reset();
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].name, "step");
  EXPECT_EQ(ranges[1].name, "inner");
  EXPECT_EQ(ranges[2].name, "other thread");
  EXPECT_EQ(ranges[0].thread, ranges[1].thread);
  EXPECT_NE(ranges[0].thread, ranges[2].thread);
  for (const LoggedRange& range : ranges) EXPECT_LE(range.start_ns, range.end_ns);
  EXPECT_LE(ranges[1].end_ns, ranges[0].end_ns) << "the inner one ends first";
  EXPECT_TRUE(close_range_log().empty());
}

TEST(RangeLog, ARangeOfAnEarlierLogIsNotInTheNext) {
  open_range_log();
  auto across = std::make_unique<NvtxRange>("across");
  (void)close_range_log();
  open_range_log();
  across.reset();
  { const NvtxRange own("own"); }
  const auto ranges = close_range_log();
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0].name, "own");
}

TEST(RangeLog, WithoutALogNothingIsKept) {
  { const NvtxRange range("nobody listens"); }
  EXPECT_TRUE(close_range_log().empty());
}

}  // namespace
}  // namespace fathom
