#include "load/run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/fake_generator.h"
#include "http/scripted_server.h"
#include "load/arrivals.h"

namespace fathom::load {
namespace {

using State = RequestRecord::State;

std::vector<Request> requests(int64_t count, int64_t output_tokens = 3) {
  return std::vector<Request>(static_cast<size_t>(count),
                              Request{.ids = {1, 2}, .input_tokens = 2, .output_tokens = output_tokens});
}

// Keeps requests until the test lets it respond.
class HeldTarget : public Target {
 public:
  void send(const Request&, ResponseListener listener) override { listeners.push_back(std::move(listener)); }
  void abandon() override { abandoned = true; }
  void answer(size_t i, std::string error = "") {
    const auto now = Clock::now();
    listeners[i].content(now);
    listeners[i].end(now, {.error = std::move(error), .output_tokens = 1});
  }

  std::vector<ResponseListener> listeners;
  bool abandoned = false;
};

TEST(LoadRun, EveryRequestIsSentOnTimeAndRecorded) {
  engine::FakeGenerator engine;
  const auto target = engine_target(engine, {});
  const auto asked  = requests(40);
  const auto times  = arrival_times({.request_rate = 400, .seed = 2}, 40);
  const auto result = run(*target, asked, times);
  ASSERT_EQ(result.requests.size(), 40u);
  EXPECT_FALSE(result.interrupted);
  double last = 0;
  for (size_t i = 0; i < 40; ++i) {
    const RequestRecord& r = result.requests[i];
    ASSERT_EQ(r.state, State::completed) << r.error;
    EXPECT_EQ(r.scheduled_s, times[i]);
    EXPECT_GE(r.sent_s, times[i]);
    EXPECT_EQ(r.content_s.size(), 3u);
    EXPECT_TRUE(std::is_sorted(r.content_s.begin(), r.content_s.end()));
    EXPECT_GE(r.content_s.front(), r.sent_s);
    EXPECT_GE(r.ended_s, r.content_s.back());
    EXPECT_EQ(r.input_tokens, 2);
    EXPECT_EQ(r.output_tokens, 3);
    last = std::max(last, r.ended_s);
  }
  EXPECT_EQ(result.duration_s, last);
  EXPECT_GE(result.duration_s, 0.1);
}

// An open loop does not wait for responses: all requests are sent before the first one.
TEST(LoadRun, ASlowTargetDoesNotSlowTheArrivals) {
  HeldTarget target;
  const auto asked  = requests(20);
  const auto times  = arrival_times({.request_rate = 2000}, 20);
  const auto result = run(target, asked, times, {.progress = [&](const Progress& now) {
                            if (now.sent == 20 && now.completed == 0)
                              for (size_t i = 0; i < 20; ++i) target.answer(i);
                          }});
  EXPECT_EQ(summarize(result.requests, result.duration_s).peak_concurrency, 20);
}

TEST(LoadRun, ALimitOfConcurrencyIsKeptAndItsWaitIsTold) {
  HeldTarget target;
  const auto asked = requests(6);
  const std::vector<double> now(6, 0.0);
  size_t answered = 0, most = 0;
  const auto result = run(target, asked, now, {.max_concurrency = 2, .progress = [&](const Progress& p) {
                                                 most = std::max(most, target.listeners.size() - answered);
                                                 if (target.listeners.size() - answered == 2 || p.sent == 6)
                                                   while (answered < target.listeners.size())
                                                     target.answer(answered++);
                                               }});
  EXPECT_EQ(most, 2u);
  const auto sum = summarize(result.requests, result.duration_s);
  EXPECT_EQ(sum.completed, 6);
  EXPECT_EQ(sum.peak_concurrency, 2);
  EXPECT_GT(*sum.client_queue.percentile(100), 0);
  // Latency starts when the request is sent, so it does not include the wait in the client.
  for (const auto& r : result.requests) EXPECT_LE(r.scheduled_s, r.sent_s);
  EXPECT_GT(result.requests[5].sent_s, result.requests[0].ended_s);
}

TEST(LoadRun, FailuresAreCountedWithTheirMessages) {
  HeldTarget target;
  const auto asked = requests(3);
  const std::vector<double> now(3, 0.0);
  Progress last;
  bool answered     = false;
  const auto result = run(target, asked, now, {.progress = [&](const Progress& p) {
                            last = p;
                            if (p.sent < 3 || answered) return;
                            answered = true;
                            target.answer(0);
                            target.answer(1, "no luck");
                            target.answer(2, "no luck");
                          }});
  const auto sum    = summarize(result.requests, result.duration_s);
  EXPECT_EQ(sum.completed, 1);
  EXPECT_EQ(sum.errors.at("no luck"), 2);
}

TEST(LoadRun, StoppedItKeepsWhatWasAnswered) {
  HeldTarget target;
  const auto asked = requests(4);
  const std::vector<double> times{0, 0, 0, 1e6};
  bool stop         = false;
  const auto result = run(target, asked, times,
                          {.progress =
                               [&](const Progress& p) {
                                 if (p.completed == 0 && p.sent == 3) target.answer(1);
                                 stop = p.sent == 3;
                               },
                           .stop = [&] { return stop; }});
  EXPECT_TRUE(result.interrupted);
  EXPECT_TRUE(target.abandoned);
  EXPECT_EQ(result.requests[0].state, State::unfinished);
  EXPECT_EQ(result.requests[1].state, State::completed);
  EXPECT_EQ(result.requests[3].state, State::unsent);
  const auto sum = summarize(result.requests, result.duration_s);
  EXPECT_EQ(sum.completed, 1);
  EXPECT_EQ(sum.unfinished, 3);
  EXPECT_GT(sum.request_throughput, 0);
}

TEST(LoadRun, NothingToSendIsOverAtOnce) {
  HeldTarget target;
  EXPECT_EQ(run(target, {}, {}).duration_s, 0);
}

// Over HTTP, with a server that fails in every way.
TEST(LoadRun, AServersFailuresAreAllTold) {
  const std::string token = "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":null}]}\n\n";
  const std::string end =
      "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
  http::ScriptedServer server([&](const http::ScriptedServer::Exchange& e) {
    switch (nlohmann::json::parse(e.body)["max_tokens"].get<int>()) {
      case 1:
        return e.send(std::string(http::kStreamHead) + http::chunk(token) + http::chunk(token + end) +
                          std::string(http::kStreamEnd),
                      5);
      case 2:
        return e.send(
            "HTTP/1.1 429 Too Many\r\nContent-Length: 31\r\n\r\n{\"error\":{\"message\":\"queue\"  }}");
      case 3:
        e.send(std::string(http::kStreamHead) + http::chunk(token));
        return false;
      case 4:
        e.send(std::string(http::kStreamHead) + http::chunk(token) + std::string(http::kStreamEnd));
        return false;
      default:
        e.wait_until_closed();
        return false;
    }
  });
  auto client       = std::move(http::Client::open({.port = server.port()})).value();
  const auto target = openai_target(*client, {.model = "m", .timeout = std::chrono::seconds(1)});
  auto asked        = requests(10);
  for (size_t i = 0; i < asked.size(); ++i) asked[i].output_tokens = static_cast<int64_t>(i % 5) + 1;
  const std::vector<double> now(asked.size(), 0.0);
  const auto result = run(*target, asked, now);
  const auto sum    = summarize(result.requests, result.duration_s);
  EXPECT_EQ(sum.completed, 2);
  EXPECT_EQ(sum.failed, 8);
  EXPECT_EQ(sum.input_tokens, 8);
  EXPECT_EQ(sum.output_tokens, 4);
  EXPECT_EQ(sum.itl.count(), 2);
  EXPECT_EQ(sum.errors.size(), 4u);
  for (const auto& [error, count] : sum.errors) EXPECT_EQ(count, 2) << error;
  EXPECT_EQ(sum.errors.count("HTTP 429: queue"), 1u);
}

TEST(LoadRun, NobodyListeningIsAFailureOfEach) {
  uint16_t port;
  {
    http::ScriptedServer server([](const auto&) { return false; });
    port = server.port();
  }
  auto client       = std::move(http::Client::open({.port = port})).value();
  const auto target = openai_target(*client, {.model = "m"});
  const auto asked  = requests(5);
  const auto sum    = summarize(run(*target, asked, std::vector<double>(5, 0.0)).requests, 1);
  EXPECT_EQ(sum.failed, 5);
  EXPECT_NE(sum.first_error.find("refused"), std::string::npos) << sum.first_error;
}

// Records of a server that completes each request `latency` after its arrival, but not more than `capacity`
// requests per second.
std::vector<RequestRecord> served(double rate, double capacity, double latency, double window,
                                  uint64_t seed) {
  const auto count = static_cast<int64_t>(rate * window);
  std::vector<RequestRecord> all;
  double free = 0;
  for (const double at : arrival_times({.request_rate = rate, .seed = seed}, count)) {
    free = std::max(free, at) + 1 / capacity;
    all.push_back({.state       = State::completed,
                   .scheduled_s = at,
                   .sent_s      = at,
                   .ended_s     = std::max(free, at + latency)});
  }
  return all;
}

TEST(Saturation, AStableServerCompletesWhatIsOfferedHoweverSlowItIs) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    for (const double latency : {0.01, 1.0, 4.0})
      EXPECT_GE(completed_over_offered(served(50, 100, latency, 20, seed), 20), 0.99)
          << latency << " " << seed;
    // A capacity of 100/s needs 40 s for 20 s of arrivals at 200/s.
    EXPECT_NEAR(completed_over_offered(served(200, 100, 0.1, 20, seed), 20), 0.5, 0.05);
    EXPECT_LT(completed_over_offered(served(112, 100, 0.1, 20, seed), 20), kHeld);
  }
}

TEST(Saturation, WhatFailsOrIsCutShortIsNotCompleted) {
  auto records = served(50, 100, 0.01, 20, 1);
  for (size_t i = 0; i < records.size(); i += 2)
    records[i].state = i % 4 == 0 ? State::failed : State::unfinished;
  EXPECT_NEAR(completed_over_offered(records, 20), 0.5, 0.01);
  for (auto& r : records) r.state = State::failed;
  EXPECT_EQ(completed_over_offered(records, 20), 0);
}

TEST(Saturation, IsFoundFromAboveAndFromBelow) {
  // A capacity of 100/s completes 95 % of up to 100 / 0.95 requests per second.
  for (const double first : {0.7, 60.0, 105.0, 3000.0}) {
    const auto found = find_saturation(
        first, 8, [](double rate) -> std::optional<double> { return std::min(1.0, 100 / rate); });
    EXPECT_LE(found.request_rate, 100 / 0.95) << first;
    EXPECT_GE(found.request_rate, 100 / 0.95 * 0.997) << first;
    EXPECT_LE(found.trials.size(), 1u + 20 + 8);
  }
}

TEST(Saturation, AServerWithoutLimitAndOneThatFailsAlwaysEndTheSearch) {
  const auto unlimited = find_saturation(1, 4, [](double) -> std::optional<double> { return 1.0; });
  EXPECT_EQ(unlimited.request_rate, std::pow(2, 20));
  const auto broken = find_saturation(1, 4, [](double) -> std::optional<double> { return 0.0; });
  EXPECT_EQ(broken.request_rate, 0);
  int left       = 3;
  const auto cut = find_saturation(1, 4, [&](double) -> std::optional<double> {
    if (left-- == 0) return {};
    return 1.0;
  });
  EXPECT_EQ(cut.request_rate, 4);
  EXPECT_EQ(cut.trials.size(), 3u);
}

}  // namespace
}  // namespace fathom::load
