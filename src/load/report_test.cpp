#include "load/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace fathom::load {
namespace {

using State = RequestRecord::State;

RunResult run_of_two() {
  return {.requests   = {{.state         = State::completed,
                          .scheduled_s   = 0,
                          .sent_s        = 0.5,
                          .ended_s       = 2.5,
                          .content_s     = {1, 1.5, 2.5},
                          .input_tokens  = 7,
                          .output_tokens = 3},
                         {.state = State::failed, .sent_s = 0.5, .ended_s = 1, .error = "HTTP 429: full"}},
          .duration_s = 4};
}

Config setup(int64_t max_concurrency) {
  return {.date            = "20260502-101500",
          .model_id        = "m",
          .num_prompts     = 2,
          .arrivals        = {.request_rate = 2.5},
          .max_concurrency = max_concurrency};
}

// vLLM's format: labels in 40 columns, then the number; rules of 50 columns.
TEST(LoadReport, TheTextIsVllmsWithOurLinesBelow) {
  const auto run  = run_of_two();
  const auto text = report_text(setup(8), summarize(run.requests, run.duration_s, {.e2el_s = 5}),
                                {{"ttft", "tpot"}, {50, 99.9}});
  EXPECT_EQ(text,
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     1         \n"
            "Failed requests:                         1         \n"
            "Maximum request concurrency:             8         \n"
            "Request rate configured (RPS):           2.50      \n"
            "Benchmark duration (s):                  4.00      \n"
            "Total input tokens:                      7         \n"
            "Total generated tokens:                  3         \n"
            "Request throughput (req/s):              0.25      \n"
            "Request goodput (req/s):                 0.25      \n"
            "Output token throughput (tok/s):         0.75      \n"
            "Peak output token throughput (tok/s):    1.00      \n"
            "Peak concurrent requests:                1.00      \n"
            "Total token throughput (tok/s):          2.50      \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          500.00    \n"
            "Median TTFT (ms):                        500.00    \n"
            "P50 TTFT (ms):                           500.00    \n"
            "P99.9 TTFT (ms):                         500.00    \n"
            "-----Time per Output Token (excl. 1st token)------\n"
            "Mean TPOT (ms):                          750.00    \n"
            "Median TPOT (ms):                        750.00    \n"
            "P50 TPOT (ms):                           750.00    \n"
            "P99.9 TPOT (ms):                         750.00    \n"
            "---------------Client-side Queueing---------------\n"
            "Mean Client Queue Time (ms):             500.00    \n"
            "Median Client Queue Time (ms):           500.00    \n"
            "P50 Client Queue Time (ms):              500.00    \n"
            "P99.9 Client Queue Time (ms):            500.00    \n"
            "==================================================\n"
            "The first failure: HTTP 429: full\n");
}

TEST(LoadReport, TheJsonHasVllmsKeys) {
  const auto run = run_of_two();
  auto out = report_json(setup(0), summarize(run.requests, run.duration_s), {{"ttft", "e2el"}, {99, 99.5}});
  EXPECT_EQ(out["backend"], "openai");
  EXPECT_EQ(out["request_rate"], 2.5);
  EXPECT_EQ(out["burstiness"], 1.0);
  EXPECT_TRUE(out["max_concurrency"].is_null());
  EXPECT_EQ(out["completed"], 1);
  EXPECT_EQ(out["total_output_tokens"], 3);
  EXPECT_EQ(out["output_throughput"], 0.75);
  EXPECT_EQ(out["mean_ttft_ms"], 500);
  EXPECT_EQ(out["std_ttft_ms"], 0);
  EXPECT_EQ(out["p99_e2el_ms"], 2000);
  EXPECT_EQ(out["p99.5_e2el_ms"], 2000);
  EXPECT_FALSE(out.contains("mean_tpot_ms"));
  EXPECT_EQ(out["failures"]["HTTP 429: full"], 1);
  EXPECT_FALSE(out.contains("itls"));
  add_details(out, run);
  EXPECT_EQ(out["ttfts"], (nlohmann::json{0.5, 0.0}));
  EXPECT_EQ(out["itls"][0], (nlohmann::json{0.5, 1.0}));
  EXPECT_EQ(out["output_lens"], (nlohmann::json{3, 0}));
  EXPECT_EQ(out["errors"], (nlohmann::json{"", "HTTP 429: full"}));
  EXPECT_EQ(out["queue_times"][0], 0.5);
}

TEST(LoadReport, WhatIsNotKnownIsNullAndADash) {
  Config all_at_once{.arrivals = {}};
  const auto sum = summarize({}, 0);
  const auto out = report_json(all_at_once, sum, {});
  EXPECT_EQ(out["request_rate"], "inf");
  EXPECT_TRUE(out["mean_ttft_ms"].is_null());
  const auto text = report_text(all_at_once, sum, {});
  EXPECT_NE(text.find("Mean TTFT (ms):                          -  "), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("configured"), std::string::npos);
}

TEST(LoadReport, MetricsAreReadOrRefused) {
  const auto good = parse_metrics("e2el,ttft", "50,99.9,100");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->names, (std::vector<std::string>{"e2el", "ttft"}));
  EXPECT_EQ(good->percentiles, (std::vector<double>{50, 99.9, 100}));
  for (const char* names : {"", "ttft,", "p99"}) EXPECT_FALSE(parse_metrics(names, "99")) << names;
  for (const char* ps : {"", "101", "-1", "9x", "nan", "50,,99"})
    EXPECT_FALSE(parse_metrics("ttft", ps)) << ps;
}

}  // namespace
}  // namespace fathom::load
