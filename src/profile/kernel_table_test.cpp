#include "profile/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace fathom::profile {
namespace {

lab::KernelRecord kernel(const char* name, int64_t start, int64_t end) {
  lab::KernelRecord record{.name = name, .grid = {132, 8, 1}, .block = {256, 1, 1}, .registers = 64};
  record.static_shared = 4224;
  record.start_ns      = 1'000'000 + start;
  record.end_ns        = 1'000'000 + end;
  record.occupancy     = 0.5;
  record.limiter       = "registers";
  return record;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(KernelTable, SumsLaunchesOfTheSameShape) {
  lab::KernelRecord wider = kernel("tile", 500, 600);
  wider.grid              = {264, 1, 1};
  const KernelTable table =
      kernel_table({kernel("tile", 0, 100), kernel("sum", 110, 410), kernel("tile", 420, 500), wider},
                   {.read = 6000, .written = 3000, .flops = 1200});
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[0].name, "sum");
  EXPECT_EQ(table.rows[1].calls, 2);
  EXPECT_DOUBLE_EQ(table.rows[1].time_ns, 180);
  EXPECT_EQ(table.rows[2].grid[0], 264);
  EXPECT_EQ(table.kernels, 4);
  EXPECT_DOUBLE_EQ(table.time_ns, 580);
  EXPECT_DOUBLE_EQ(table.span_ns, 600);
  EXPECT_DOUBLE_EQ(table.rows[0].share, 300.0 / 580);
  EXPECT_DOUBLE_EQ(*table.bytes_per_s, 9000 / 600e-9);
  EXPECT_DOUBLE_EQ(*table.flops_per_s, 1200 / 600e-9);
}

TEST(KernelTable, RatesAreAbsentWithoutTimesOrWork) {
  const KernelTable nothing = kernel_table({}, {.read = 1});
  EXPECT_EQ(nothing.rows.size(), 0U);
  EXPECT_FALSE(nothing.bytes_per_s);
  lab::KernelRecord timeless = kernel("tile", 0, 0);
  timeless.start_ns = timeless.end_ns = 0;
  const KernelTable untimed           = kernel_table({timeless}, {.read = 1});
  EXPECT_FALSE(untimed.bytes_per_s);
  EXPECT_EQ(untimed.rows[0].share, 0);
  // A kernel without times does not extend the span to time zero.
  EXPECT_DOUBLE_EQ(kernel_table({timeless, kernel("tile", 0, 100)}, {}).span_ns, 100);
  EXPECT_FALSE(kernel_table({kernel("tile", 0, 100)}, {}).bytes_per_s);
}

TEST(KernelTable, AddsCountersOfTheSameKernel) {
  lab::KernelRecord a = kernel("tile", 0, 100), b = kernel("tile", 100, 200);
  a.counters              = {{"dram_bytes_read", 10}, {"l2_hit_pct", 20}};
  b.counters              = {{"dram_bytes_read", 30}, {"l2_hit_pct", 40}};
  const KernelTable table = kernel_table({a, b}, {});
  EXPECT_EQ(table.rows.at(0).counters,
            (std::map<std::string, double>{{"dram_bytes_read", 40}, {"l2_hit_pct", 30}}));
}

TEST(KernelTable, ReadsAsText) {
  lab::KernelRecord clustered = kernel("gemm<128, 256>", 0, 1'000'000);
  clustered.cluster           = {2, 1, 1};
  clustered.dynamic_shared    = 196 * 1024;
  const auto text             = lines(to_text(kernel_table({clustered, kernel("tile", 1'000'000, 1'001'000)},
                                                           {.read = 4'000'000'000, .flops = 7e11})));
  ASSERT_EQ(text.size(), 4U);
  EXPECT_NE(text[1].find("132x8 in 2"), std::string::npos) << text[1];
  EXPECT_NE(text[1].find("200 KiB"), std::string::npos) << text[1];
  EXPECT_NE(text[1].find("50 %, registers"), std::string::npos) << text[1];
  EXPECT_NE(text[2].find("4224 B"), std::string::npos) << text[2];
  EXPECT_NE(text[3].find("TB/s"), std::string::npos) << text[3];
  EXPECT_NE(text[3].find("TFLOP/s"), std::string::npos) << text[3];
  for (const std::string& line : text) EXPECT_FALSE(line.ends_with(' ')) << line;
}

TEST(KernelTable, IsAMarkdownTable) {
  const auto text = lines(to_markdown(kernel_table({kernel("gemm<128>", 0, 100)}, {})));
  ASSERT_EQ(text.size(), 4U);
  for (const std::string& line : text) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 13) << line;
    EXPECT_TRUE(line.starts_with("| ") && line.ends_with(" |")) << line;
  }
  EXPECT_TRUE(text[1].starts_with("| ---")) << text[1];
  EXPECT_NE(text[2].find("`gemm<128>`"), std::string::npos);
}

TEST(KernelTable, IsJsonWithUnitsInNames) {
  const nlohmann::json json = to_json(kernel_table({kernel("tile", 0, 100)}, {.read = 100}));
  EXPECT_EQ(json.at("schema"), "fathom.kernels/1");
  EXPECT_EQ(json.at("kernels").at(0).at("grid"), (nlohmann::json{132, 8, 1}));
  EXPECT_EQ(json.at("kernels").at(0).at("registers_per_thread"), 64);
  EXPECT_EQ(json.at("kernels").at(0).at("time_ns"), 100.0);
  EXPECT_EQ(json.at("bytes_per_s"), 1e9);
  EXPECT_TRUE(json.at("flops_per_s").is_null());
}

}  // namespace
}  // namespace fathom::profile
