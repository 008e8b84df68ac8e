#include "experiments/ch13_training/caching_allocator/serving_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace fathom::lab::caching_allocator {
namespace {

// Each allocation is made in order, once, and freed once, later; the peak is that of the events.
void expect_consistent(const Trace& trace) {
  std::set<int32_t> live;
  int32_t made   = 0;
  int64_t in_use = 0, most = 0;
  for (const Trace::Event& event : trace.events) {
    if (event.frees) {
      ASSERT_EQ(live.erase(event.allocation), 1u) << event.allocation;
      in_use -= trace.bytes[static_cast<size_t>(event.allocation)];
    } else {
      ASSERT_EQ(event.allocation, made++);
      live.insert(event.allocation);
      in_use += trace.bytes[static_cast<size_t>(event.allocation)];
      most = std::max(most, in_use);
    }
  }
  EXPECT_TRUE(live.empty()) << live.size() << " are never freed";
  EXPECT_EQ(static_cast<size_t>(made), trace.bytes.size());
  EXPECT_EQ(most, trace.peak_bytes);
  for (const int64_t bytes : trace.bytes) {
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(bytes % 4, 0);
  }
}

TEST(ServingTrace, FreesWhatItAllocates) {
  for (const int64_t steps : {0, 1, 2, 3, 4, 5, 16, 17}) {
    SCOPED_TRACE(steps);
    expect_consistent(moe_serving_trace(steps));
  }
}

TEST(ServingTrace, IsEmptyWithoutSteps) {
  const Trace trace = moe_serving_trace(0);
  EXPECT_TRUE(trace.events.empty());
  EXPECT_EQ(trace.peak_bytes, 0);
}

TEST(ServingTrace, HasSmallStepsAndLargeOnes) {
  const Trace trace              = moe_serving_trace(16);
  const auto [smallest, largest] = std::minmax_element(trace.bytes.begin(), trace.bytes.end());
  EXPECT_LT(*smallest, 4096);
  EXPECT_GT(*largest, int64_t{64} << 20);
  EXPECT_LT(trace.peak_bytes, int64_t{1} << 30);
}

// What a longer trace begins with is the shorter one: but for the KV cache that outlives it.
TEST(ServingTrace, IsTheSameEachTime) {
  const Trace once = moe_serving_trace(5), again = moe_serving_trace(5), longer = moe_serving_trace(6);
  EXPECT_EQ(once.bytes, again.bytes);
  ASSERT_LT(once.bytes.size(), longer.bytes.size());
  EXPECT_TRUE(std::equal(once.bytes.begin(), once.bytes.end(), longer.bytes.begin()));
}

}  // namespace
}  // namespace fathom::lab::caching_allocator
