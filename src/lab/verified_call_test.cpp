#include "lab/verified_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lab/experiment_info.h"

namespace fathom::lab {
namespace {

// With declared threads only those that are left behind count.
VariantInfo of_two_threads() {
  VariantInfo variant;
  variant.threads = 2;
  return variant;
}

TEST(AuditThreads, AThreadThatWasJoinedIsNotLeftBehind) {
  for (int i = 0; i < 300; ++i) {
    const ThreadAudit before = ThreadAudit::now();
    std::thread([] {}).join();
    const auto caught = audit_threads(of_two_threads(), before, ThreadAudit::now());
    ASSERT_FALSE(caught) << caught->detail;
  }
}

TEST(AuditThreads, AThreadThatWorksOnOrWaitsIsLeftBehind) {
  using Steady = std::chrono::steady_clock;
  for (const bool works : {true, false}) {
    const ThreadAudit before = ThreadAudit::now();
    std::thread left([works] {
      const auto end = Steady::now() + std::chrono::milliseconds(works ? 5 : 100);
      while (Steady::now() < end)
        if (!works) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    });
    const auto caught = audit_threads(of_two_threads(), before, ThreadAudit::now());
    ASSERT_TRUE(caught) << (works ? "works" : "waits");
    EXPECT_EQ(caught->defence, "thread_audit");
    left.join();
  }
}

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
