// On a virtual clock.
#include "serve/outlier_ejection.h"

#include <gtest/gtest.h>

#include <vector>

#include "serve/retry_budget.h"

namespace fathom::serve {
namespace {

using namespace std::chrono_literals;

// Workers with a stream each. Every 100 ms each stream has waited that long and got its tokens.
struct Streams {
  OutlierEjection ejection{{}};
  OutlierEjection::TimePoint now{1h};
  std::vector<bool> serves;

  // Seconds until the first ejection; `tokens` of each worker in 100 ms; negative: it has no stream.
  std::vector<size_t> run(const std::vector<int64_t>& tokens, std::chrono::milliseconds time) {
    serves.assign(tokens.size(), true);
    for (const auto end = now + time; now < end;) {
      now += 100ms;
      for (size_t w = 0; w < tokens.size(); ++w)
        if (tokens[w] >= 0) ejection.observe(w, 0.1, tokens[w], now);
      if (const auto found = ejection.judge(serves, now); !found.empty()) return found;
    }
    return {};
  }
};

TEST(OutlierEjectionTest, ATenTimesSlowerWorkerIsEjectedWithinABound) {
  Streams streams;
  const auto begin = streams.now;
  EXPECT_EQ(streams.run({50, 5, 50}, 10s), std::vector<size_t>{1});
  EXPECT_LE(streams.now - begin, 2s);
  EXPECT_TRUE(streams.ejection.ejected(1, streams.now + 4900ms));
  EXPECT_FALSE(streams.ejection.ejected(1, streams.now + 5s));
  EXPECT_FALSE(streams.ejection.ejected(0, streams.now));
}

TEST(OutlierEjectionTest, OneThatStopsIsEjectedAsWell) {
  Streams streams;
  EXPECT_EQ(streams.run({50, 50}, 3s), std::vector<size_t>{});
  EXPECT_EQ(streams.run({50, 0}, 10s), std::vector<size_t>{1});
}

TEST(OutlierEjectionTest, EqualsAndThoseALittleSlowerStay) {
  Streams streams;
  EXPECT_EQ(streams.run({50, 50, 40, 12}, 20s), std::vector<size_t>{});
  EXPECT_EQ(streams.run({5, 5, 5, 5}, 20s), std::vector<size_t>{}) << "all are slow: nobody is an outlier";
}

TEST(OutlierEjectionTest, AShortHiccupIsForgiven) {
  Streams streams;
  EXPECT_EQ(streams.run({50, 50}, 5s), std::vector<size_t>{});
  EXPECT_EQ(streams.run({50, 0}, 300ms), std::vector<size_t>{});
  EXPECT_EQ(streams.run({50, 50}, 5s), std::vector<size_t>{});
}

TEST(OutlierEjectionTest, AtMostHalfAreEjectedAndNeverTheLast) {
  Streams streams;
  EXPECT_EQ(streams.run({50}, 5s), std::vector<size_t>{});
  Streams three;
  EXPECT_EQ(three.run({50, 1, 50}, 5s), std::vector<size_t>{1});
  EXPECT_EQ(three.run({50, -1, 1}, 4s), std::vector<size_t>{}) << "one of three is out already";
}

TEST(OutlierEjectionTest, EachTimeInARowIsTwiceAsLong) {
  Streams streams;
  for (const auto time : {5s, 10s, 20s, 40s, 60s, 60s}) {
    ASSERT_EQ(streams.run({50, 1}, 10s), std::vector<size_t>{1});
    EXPECT_TRUE(streams.ejection.ejected(1, streams.now + time - 1ms));
    EXPECT_FALSE(streams.ejection.ejected(1, streams.now + time));
    streams.now += time;
  }
  EXPECT_EQ(streams.run({50, 50}, 5s), std::vector<size_t>{});  // it recovered
  ASSERT_EQ(streams.run({50, 1}, 20s), std::vector<size_t>{1});
  EXPECT_FALSE(streams.ejection.ejected(1, streams.now + 5s));
}

TEST(RetryBudgetTest, RetriesAreAShareOfRequestsAndAFewASecond) {
  RetryBudget budget({.share = 0.2, .per_second = 1, .most = 3});
  RetryBudget::TimePoint now(1h);
  const auto taken = [&](int tries) {
    int count = 0;
    for (int i = 0; i < tries; ++i) count += budget.take(now);
    return count;
  };
  EXPECT_EQ(taken(100), 3);
  now += 1s;
  EXPECT_EQ(taken(100), 1);
  for (int i = 0; i < 11; ++i) budget.request();
  EXPECT_EQ(taken(100), 2);
  now += 1h;
  EXPECT_EQ(taken(100), 3) << "no more than that is saved up";
}

}  // namespace
}  // namespace fathom::serve
