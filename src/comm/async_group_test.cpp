#include "comm/async_group.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

#include "comm/group_checks.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

using Mode = AsyncGroup::Mode;

constexpr GroupOptions kUnhurried{.timeout = std::chrono::seconds(20)};

class AsyncGroups : public testing::TestWithParam<std::tuple<int, Mode>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  Mode mode() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(SizesAndModes, AsyncGroups,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Mode::blocking, Mode::overlapped)));

// Buffers of uneven lengths, all under way at once, while this thread fills the next.
TEST_P(AsyncGroups, SumsWhatWasThereWhenTheWorkStarted) {
  expect_all_well(on_threads(ranks(), kUnhurried, [this](Group& group) {
    AsyncGroup async(group, mode());
    std::vector<std::vector<int64_t>> buffers;
    std::vector<AsyncGroup::Work> work;
    for (const size_t n : {1, 0, 7, 9'001, 64, 3}) {
      buffers.emplace_back(n);
      std::iota(buffers.back().begin(), buffers.back().end(), group.rank());
      const std::span<int64_t> data = buffers.back();
      work.push_back(async.start([data](Group& g) { g.all_reduce(data); }));
    }
    const int64_t size = group.size();
    for (size_t b = buffers.size(); b-- > 0;) {
      async.wait(work[b]);
      for (size_t i = 0; i < buffers[b].size(); ++i)
        ASSERT_EQ(buffers[b][i], size * static_cast<int64_t>(i) + size * (size - 1) / 2);
    }
  }));
}

TEST_P(AsyncGroups, WorkIsDoneInTheOrderOfItsStart) {
  expect_all_well(on_threads(ranks(), kUnhurried, [this](Group& group) {
    AsyncGroup async(group, mode());
    std::vector<int> order;
    AsyncGroup::Work last;
    for (int i = 0; i < 100; ++i) last = async.start([&order, i](Group&) { order.push_back(i); });
    async.wait(last);
    std::vector<int> want(100);
    std::iota(want.begin(), want.end(), 0);
    EXPECT_EQ(order, want);
  }));
}

TEST_P(AsyncGroups, TheDestructorDoesWhatWasStarted) {
  expect_all_well(on_threads(ranks(), kUnhurried, [this](Group& group) {
    int64_t ones = 1;
    {
      AsyncGroup async(group, mode());
      async.start([&](Group& g) { g.all_reduce(std::span<int64_t>(&ones, 1)); });
    }
    EXPECT_EQ(ones, group.size());
  }));
}

TEST_P(AsyncGroups, TimesTellWhatTheCallerWaitedFor) {
  expect_all_well(on_threads(ranks(), kUnhurried, [this](Group& group) {
    AsyncGroup async(group, mode());
    std::vector<float> data(100'000, 1);
    async.wait(async.start([&](Group& g) { g.all_reduce(std::span(data)); }));
    const AsyncGroup::Times times = async.take_times();
    EXPECT_GT(times.communication, 0);
    EXPECT_GT(times.cpu, 0);
    EXPECT_GE(times.exposed, 0);
    if (mode() == Mode::blocking) {
      EXPECT_EQ(times.exposed, times.communication);
      EXPECT_EQ(times.hidden_share(), 0);
    }
    EXPECT_EQ(async.take_times().communication, 0);
  }));
}

TEST(AsyncGroup, HiddenShareIsThePartThatNobodyWaitedFor) {
  EXPECT_EQ(AsyncGroup::Times{}.hidden_share(), 0);
  EXPECT_EQ((AsyncGroup::Times{.communication = 8, .exposed = 2}).hidden_share(), 0.75);
  EXPECT_EQ((AsyncGroup::Times{.communication = 8, .exposed = 9}).hidden_share(), 0);  // and woke up late
}

// The rank that fails, and the other, which meets a broken group: both hear of it, and nothing hangs.
TEST(AsyncGroup, EveryWaitAfterAnErrorThrowsIt) {
  const auto errors = on_threads(2, kUnhurried, [](Group& group) {
    AsyncGroup async(group, Mode::overlapped);
    std::vector<float> data(group.rank() == 0 ? 4 : 5), later(3, 1);
    const auto wrong = async.start([&](Group& g) { g.all_reduce(std::span(data)); });
    const auto after = async.start([&](Group&) { later[0] = 2; });
    EXPECT_THROW(async.wait(after), GroupError);
    EXPECT_EQ(later[0], 1);
    async.wait(wrong);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->cause(), GroupError::Cause::mismatch);
  }
}

TEST(AsyncGroup, AWaitForWorkOfTheFutureIsRefused) {
  expect_all_well(on_threads(1, kUnhurried, [](Group& group) {
    AsyncGroup async(group, Mode::overlapped);
    EXPECT_THROW(async.wait({1}), ContractError);
  }));
}

}  // namespace
}  // namespace fathom::comm
