#include "report/metrics_page.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace fathom::report {
namespace {

size_t count_of(const std::string& text, std::string_view words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

TEST(MetricsPage, BarsAreSharesOfTheLargestAndDifferencesAreFromTheBaseline) {
  const MetricBars ttft{.experiment = "ch15/engine",
                        .at         = "requests=40",
                        .metric     = "ttft_p50_ns",
                        .bars       = {{"plain <1>", 8e6, true}, {"all", 2e6}, {"slower", 1e7}}};
  const MetricBars memory{.experiment       = "ch15/engine",
                          .at               = "requests=40",
                          .metric           = "memory_bytes",
                          .higher_is_better = false,
                          .bars             = {{"plain <1>", 64e6, true}, {"all", 64e6}}};
  const std::string page = metrics_page("Metrics of a run", std::array{ttft, memory});
  for (const char* part : {"width: 80.0%", "width: 20.0%", "width: 100.0%", "8.00 ms", "-75.0 %", "+25.0 %",
                           "64.0 MB", "+0.0 %", "plain &lt;1&gt;", "lower is better"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(count_of(page, "<h2>"), 1u);
  EXPECT_EQ(page.find("plain <1>"), std::string::npos);
}

TEST(MetricsPage, WhatCannotBeComparedHasADash) {
  const MetricBars chart{.experiment       = "ch17/routing",
                         .metric           = "output_tokens_per_s",
                         .higher_is_better = true,
                         .bars             = {{"none", 0, true}, {"some", 5}, {"no_number", NAN}}};
  const std::string page = metrics_page("x", std::array{chart});
  EXPECT_EQ(count_of(page, "<td class=\"num\">–</td>"), 3u);  // some against 0, and no_number twice
  EXPECT_EQ(count_of(page, "width: 0.0%"), 2u);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  EXPECT_EQ(page.find(" at "), std::string::npos);
}

}  // namespace
}  // namespace fathom::report
