#include "cli/bench_serve_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace fathom::cli {
namespace {

int count(const std::string& text, std::string_view what) {
  int found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

load::Summary summary_of(double ttft_s) {
  load::RequestRecord r{.state         = load::RequestRecord::State::completed,
                        .ended_s       = ttft_s + 0.2,
                        .content_s     = {ttft_s, ttft_s + 0.1, ttft_s + 0.2},
                        .input_tokens  = 5,
                        .output_tokens = 3};
  const load::RequestRecord records[] = {r,
                                         {.state = load::RequestRecord::State::failed, .error = "a < b & c"}};
  return load::summarize(records, 2);
}

LoadReport sweep() {
  LoadReport report{
      .server = "http://s", .workload = "random", .saturation = {.request_rate = 4, .trials = {{4, 1}}}};
  for (const double relative : {0.5, 1.0, 1.5})
    report.points.push_back(
        {.setup   = {.model_id = "<script>alert(1)</script>", .arrivals = {.request_rate = 4 * relative}},
         .summary = summary_of(relative * relative),
         .of_saturation = relative});
  for (const int64_t length : {128, 2048})
    report.lengths.push_back({length, summary_of(1e-3 * static_cast<double>(length))});
  return report;
}

TEST(LoadPage, ASweepHasFourChartsItsNumbersAndTheHeatMap) {
  const std::string page = bench_serve_page(sweep());
  EXPECT_EQ(count(page, "<svg"), 4);
  EXPECT_EQ(count(page, "</svg>"), 4);
  // Three rates, three percentiles: circles, diamonds and crosses, and one circle a point elsewhere.
  EXPECT_EQ(count(page, "p50 at "), 6);
  EXPECT_EQ(count(page, "p99 at 6.00 requests/s: 2250 TTFT, ms"), 1);
  EXPECT_NE(page.find("2,048 in"), std::string::npos);
  EXPECT_EQ(count(page, "color-mix"), 12);  // two lengths, two metrics, three percentiles
  EXPECT_EQ(count(page, "a &lt; b &amp; c"), 3);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("http://www"), std::string::npos);  // the page loads nothing
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

TEST(LoadPage, OneRunAllAtOnceIsATable) {
  LoadReport report{.server = "http://s"};
  report.points.push_back({.summary = load::summarize({}, 0)});
  const std::string page = bench_serve_page(report);
  EXPECT_EQ(count(page, "<svg"), 0);
  EXPECT_NE(page.find("all at once"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace fathom::cli
