#include "load/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fathom::load {
namespace {

using State = RequestRecord::State;

RequestRecord answered(double sent, std::vector<double> content, double ended, int64_t in, int64_t out) {
  return {.state         = State::completed,
          .scheduled_s   = sent,
          .sent_s        = sent,
          .ended_s       = ended,
          .content_s     = std::move(content),
          .input_tokens  = in,
          .output_tokens = out};
}

// Computed by hand. c was scheduled at 1.25.
//
//   request  sent  chunks at       end   tokens  TTFT   TPOT         gaps       E2EL  queue
//   a        0     0.5 0.75 1.25   1.5   3       0.5    1.0/2 = 0.5  0.25 0.5   1.5   0
//   b        1     1.125           1.25  1       0.125  none         none       0.25  0
//   c        1.5   2.5 3.5         3.5   9       1      1/8          1          2     0.25
std::vector<RequestRecord> three() {
  std::vector<RequestRecord> all{answered(0, {0.5, 0.75, 1.25}, 1.5, 10, 3),
                                 answered(1, {1.125}, 1.25, 20, 1), answered(1.5, {2.5, 3.5}, 3.5, 30, 9)};
  all[2].scheduled_s = 1.25;
  return all;
}

TEST(LoadStatistics, FollowsTheDefinitionsOfVllm) {
  const Summary s = summarize(three(), 4);
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.input_tokens, 60);
  EXPECT_EQ(s.output_tokens, 13);
  EXPECT_DOUBLE_EQ(s.request_throughput, 0.75);
  EXPECT_DOUBLE_EQ(s.output_throughput, 3.25);
  EXPECT_DOUBLE_EQ(s.total_token_throughput, 18.25);
  EXPECT_FALSE(s.request_goodput);
  EXPECT_DOUBLE_EQ(*s.ttft.mean(), (0.5 + 0.125 + 1) / 3);
  EXPECT_DOUBLE_EQ(*s.ttft.median(), 0.5);
  EXPECT_EQ(s.tpot.count(), 2);
  EXPECT_DOUBLE_EQ(*s.tpot.mean(), 0.3125);
  EXPECT_EQ(s.itl.count(), 3);
  EXPECT_DOUBLE_EQ(*s.itl.median(), 0.5);
  EXPECT_DOUBLE_EQ(*s.itl.percentile(100), 1);
  EXPECT_DOUBLE_EQ(*s.e2el.mean(), 1.25);
  EXPECT_DOUBLE_EQ(*s.client_queue.percentile(100), 0.25);
  EXPECT_DOUBLE_EQ(*s.client_queue.percentile(0), 0);
}

// By seconds from the first send: [0,1) two tokens of a; [1,2) one of a and the one of b; [2,3) and [3,4) 4.5
// each of c.
TEST(LoadStatistics, PeakTokensAreOfOneSecond) {
  EXPECT_DOUBLE_EQ(summarize(three(), 4).peak_output_throughput, 4.5);
  // Buckets start at the first send, not at the start of the run.
  const std::vector<RequestRecord> late{answered(10.9, {11.0, 11.8, 11.95}, 12, 1, 3)};
  EXPECT_DOUBLE_EQ(summarize(late, 12).peak_output_throughput, 2);
}

TEST(LoadStatistics, WhoEndsWhenAnotherStartsIsNotBesideIt) {
  EXPECT_EQ(summarize(three(), 4).peak_concurrency, 2);  // a and b; c starts when a ends
  const std::vector<RequestRecord> row{answered(0, {1}, 1, 1, 1), answered(1, {2}, 2, 1, 1)};
  EXPECT_EQ(summarize(row, 2).peak_concurrency, 1);
  std::vector<RequestRecord> same(5, answered(0, {1}, 1, 1, 1));
  EXPECT_EQ(summarize(same, 1).peak_concurrency, 5);
}

TEST(LoadStatistics, AGoodRequestKeepsAllGoals) {
  const auto goodput = [](LatencyGoals goals) { return *summarize(three(), 4, goals).request_goodput * 4; };
  EXPECT_DOUBLE_EQ(goodput({.ttft_s = 0.5}), 2);                   // a is exactly at the limit
  EXPECT_DOUBLE_EQ(goodput({.tpot_s = 0.125}), 2);                 // the TPOT of b counts as 0
  EXPECT_DOUBLE_EQ(goodput({.ttft_s = 0.5, .tpot_s = 0.125}), 1);  // b
  EXPECT_DOUBLE_EQ(goodput({.ttft_s = 0.5, .e2el_s = 0.1}), 0);
}

TEST(LoadStatistics, FailuresAreCountedAndKeptOutOfTheTimes) {
  auto all = three();
  all.push_back({.state = State::failed, .ended_s = 3, .error = "second"});
  all.push_back(
      {.state = State::failed, .ended_s = 2, .content_s = {0.1}, .output_tokens = 99, .error = "first"});
  all.push_back({.state = State::failed, .ended_s = 9, .error = "second"});
  all.push_back({.state = State::unfinished, .sent_s = 3, .content_s = {3.5}});
  all.push_back({});
  const Summary s = summarize(all, 4), clean = summarize(three(), 4);
  EXPECT_EQ(s.failed, 3);
  EXPECT_EQ(s.unfinished, 2);
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.first_error, "first");
  EXPECT_EQ(s.errors.at("second"), 2);
  EXPECT_EQ(s.output_tokens, clean.output_tokens);
  EXPECT_EQ(*s.ttft.percentile(99), *clean.ttft.percentile(99));
  EXPECT_EQ(s.peak_concurrency, clean.peak_concurrency);
}

TEST(LoadStatistics, OfNothingNothingIsKnown) {
  const Summary s = summarize({}, 0);
  EXPECT_EQ(s.completed, 0);
  EXPECT_EQ(s.request_throughput, 0);
  EXPECT_FALSE(s.ttft.mean());
  EXPECT_FALSE(s.ttft.deviation());
  EXPECT_FALSE(s.ttft.percentile(99));
}

// numpy.percentile and numpy.std of [4, 1, 3, 2].
TEST(LoadStatistics, PercentilesAndDeviationAsNumpyHasThem) {
  const Distribution d({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(*d.percentile(0), 1);
  EXPECT_DOUBLE_EQ(*d.percentile(25), 1.75);
  EXPECT_DOUBLE_EQ(*d.percentile(50), 2.5);
  EXPECT_DOUBLE_EQ(*d.percentile(90), 3.7);
  EXPECT_DOUBLE_EQ(*d.percentile(99), 3.97);
  EXPECT_DOUBLE_EQ(*d.percentile(100), 4);
  EXPECT_DOUBLE_EQ(*d.deviation(), std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(*Distribution({7}).percentile(99), 7);
}

TEST(LoadStatistics, GoalsAreReadOrRefusedByName) {
  const std::vector<std::string> good{"ttft:200", "e2el:5000.5"};
  const auto goals = parse_goals(good);
  ASSERT_TRUE(goals);
  EXPECT_DOUBLE_EQ(*goals->ttft_s, 0.2);
  EXPECT_FALSE(goals->tpot_s);
  EXPECT_DOUBLE_EQ(*goals->e2el_s, 5.0005);
  for (const char* bad : {"ttft", "ttft:", "ttft:-1", "ttft:1x", "ttft:nan", "ttft:inf", "itl:3", ":3", ""}) {
    const std::vector<std::string> texts{bad};
    const auto refused = parse_goals(texts);
    ASSERT_FALSE(refused) << bad;
    EXPECT_NE(refused.error().message.find("'" + std::string(bad) + "'"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace fathom::load
