#include "serve/slo_admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "engine/fake_generator.h"

namespace fathom::serve {
namespace {

using namespace std::chrono_literals;

// On a virtual clock: a server that works at `places` requests at once, each for `service_s`. A request's
// first token comes when it is done; the others wait. Random arrivals at `rps`.
struct QueueingServer {
  int64_t places   = 4;
  double service_s = 0.1;

  struct Seen {
    int64_t offered = 0, admitted = 0, good = 0;  // in the second half
    double most_running = 0;
  };
  // Without a limit every request is admitted.
  Seen run(double rps, double target_s, SloLimit* limit, double seconds, uint32_t seed) const {
    struct Done {
      double at_s, arrived_s;
      int64_t epoch;
      bool operator>(const Done& other) const { return at_s > other.at_s; }
    };
    std::mt19937 random(seed);
    std::exponential_distribution<double> gap(rps);
    std::priority_queue<Done, std::vector<Done>, std::greater<>> running;
    std::vector<double> free_at(static_cast<size_t>(places), 0);
    Seen seen;
    for (double now = gap(random); now < seconds; now += gap(random)) {
      for (; !running.empty() && running.top().at_s <= now; running.pop()) {
        const Done& done = running.top();
        if (limit) limit->latency(done.at_s - done.arrived_s, done.epoch);
        seen.good += done.arrived_s > seconds / 2 && done.at_s - done.arrived_s <= target_s;
      }
      const bool counts = now > seconds / 2;
      seen.offered += counts;
      if (limit && std::ssize(running) >= limit->limit()) continue;
      seen.admitted += counts;
      auto place = std::min_element(free_at.begin(), free_at.end());
      *place     = std::max(*place, now) + service_s;
      running.push({*place, now, limit ? limit->admitted(std::ssize(running) + 1) : 0});
      seen.most_running = std::max(seen.most_running, static_cast<double>(running.size()));
    }
    return seen;
  }
};

// The server can do 40 requests a second, and within 250 ms it can take 10 at once.
TEST(SloLimitTest, HoldsThePercentileUnderOverloadWhereAdmittingAllLosesAll) {
  const QueueingServer server;
  for (const double rps : {60., 120.})
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      SloLimit limit({.target_s = 0.25});
      const auto seen = server.run(rps, 0.25, &limit, 120, seed);
      EXPECT_GE(static_cast<double>(seen.good), 0.85 * static_cast<double>(seen.admitted))
          << rps << " " << seed;
      EXPECT_GE(static_cast<double>(seen.good), 0.8 * 40 * 60) << "the server is kept busy";
      EXPECT_LE(limit.limit(), 12);
      EXPECT_LT(server.run(rps, 0.25, nullptr, 120, seed).good, 40) << "a queue that grows";
    }
}

TEST(SloLimitTest, RefusesNearlyNobodyWhereTheServerKeepsUp) {
  const QueueingServer server;
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SloLimit limit({.target_s = 0.25});
    const auto seen = server.run(20, 0.25, &limit, 120, seed);
    EXPECT_GE(static_cast<double>(seen.admitted), 0.98 * static_cast<double>(seen.offered)) << seed;
  }
}

TEST(SloLimitTest, LatenciesUnderAnEarlierLimitDoNotCount) {
  SloLimit limit({.target_s = 1, .first = 100, .samples = 2});
  const int64_t before = limit.admitted(100);
  limit.latency(2, before);
  EXPECT_EQ(limit.limit(), 100);
  limit.latency(2, before);
  EXPECT_EQ(limit.limit(), 70);
  for (int i = 0; i < 98; ++i) limit.latency(2, before);
  EXPECT_EQ(limit.limit(), 70);
  EXPECT_EQ(limit.violations(), 1);
  EXPECT_EQ(limit.last_percentile_s(), 2);
  const int64_t now = limit.admitted(69);
  for (int i = 0; i < 4; ++i) limit.latency(0.5, now);
  EXPECT_EQ(limit.limit(), 70) << "it was not reached";
  EXPECT_EQ(limit.admitted(70), now);
  for (int i = 0; i < 2; ++i) limit.latency(0.5, now);
  EXPECT_EQ(limit.limit(), 71);
}

TEST(SloLimitTest, ItNeverFallsBelowOneOrRisesAboveTheMost) {
  SloLimit limit({.target_s = 1, .first = 3, .most = 5, .samples = 1});
  for (int i = 0; i < 10; ++i) limit.latency(0.1, limit.admitted(100));
  EXPECT_EQ(limit.limit(), 5);
  for (int i = 0; i < 10; ++i) limit.latency(9, limit.admitted(1));
  EXPECT_EQ(limit.limit(), 1);
}

TEST(SloAdmissionTest, RefusesBeyondTheLimitAndCountsEveryEnd) {
  engine::FakeGenerator generator({.holds_back = true});
  SloAdmission admission(generator, {.target_s = 60, .first = 3, .samples = 1000});
  std::atomic<int> ended = 0;
  std::vector<engine::RequestId> ids;
  const auto submit = [&] {
    engine::Request request;
    request.prompt     = {1};
    request.max_tokens = 2;
    return admission.submit(std::move(request), [&](const engine::RequestOutput& output) {
      if (!output.finish) return;
      ++ended;
      ended.notify_all();
    });
  };
  for (int i = 0; i < 3; ++i) ids.push_back(std::get<engine::RequestId>(submit()));
  const auto refused = submit();
  ASSERT_TRUE(std::holds_alternative<engine::Refusal>(refused));
  EXPECT_EQ(std::get<engine::Refusal>(refused).reason, engine::Refusal::Reason::queue_full);
  EXPECT_NE(std::get<engine::Refusal>(refused).message.find("60000 ms"), std::string::npos);
  admission.cancel(ids[1]);
  for (int seen = ended; seen < 1; seen = ended) ended.wait(seen);
  EXPECT_TRUE(std::holds_alternative<engine::RequestId>(submit()));
  EXPECT_TRUE(std::holds_alternative<engine::Refusal>(submit()));
  generator.let_go();
  for (int seen = ended; seen < 4; seen = ended) ended.wait(seen);
  EXPECT_EQ(admission.slo_stats().running, 0);
  EXPECT_EQ(admission.slo_stats().refused, 2);
}

TEST(SloAdmissionTest, ARefusalOfTheEngineTakesNoPlace) {
  engine::FakeGenerator generator({.queue = 0});
  SloAdmission admission(generator, {});
  EXPECT_TRUE(std::holds_alternative<engine::Refusal>(admission.submit({}, [](const auto&) {})));
  EXPECT_EQ(admission.slo_stats().running, 0);
}

}  // namespace
}  // namespace fathom::serve
