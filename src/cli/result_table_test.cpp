#include "cli/result_table.h"

#include <gtest/gtest.h>

namespace fathom::cli {
namespace {

using lab::Outcome;

lab::RunRecord run() {
  lab::VariantRecord naive{.id = "naive", .kind = "baseline", .time_ns = lab::Spread{2000, 1990, 2010}};
  lab::VariantRecord tiled{.id             = "tiled",
                           .kind           = "optimized",
                           .time_ns        = lab::Spread{1000, 990, 1010},
                           .ratio          = lab::Ratio{2, 1.98, 2.02},
                           .verdict        = "FASTER",
                           .share_of_limit = 0.5,
                           .prediction     = lab::PredictionScore{"share >= 0.8", false},
                           .metrics        = {{"bytes_per_s", {1e9, "higher"}}}};
  lab::VariantRecord library{.id = "openblas", .kind = "library", .status = Outcome::skipped};
  library.skip = lab::Skip{"needs_library", "libopenblas.so.0"};
  lab::VariantRecord wrong{.id = "cheat", .status = Outcome::wrong, .detail = "out(3) is 1, expected 2"};
  wrong.caught_by = "fresh_inputs";
  lab::PointRecord point{.at       = lab::Point({{"n", int64_t{64}}}),
                         .baseline = "naive",
                         .variants = {naive, tiled, library, wrong}};
  lab::ExperimentRecord crashed{
      .id = "ch08/crashed", .status = Outcome::crashed, .detail = "ended by signal 11"};
  return {.experiments = {{.id = "ch07/x", .points = {point}}, crashed}};
}

// A row's cell in the named column.
std::string cell(const Table& table, size_t row, const std::string& column) {
  for (size_t c = 0; c < table.columns.size(); ++c)
    if (table.columns[c].name == column) return table.rows.at(row)[c];
  return "no column " + column;
}

TEST(ResultTable, ExperimentsSkippedWholeForOneReasonShareARow) {
  lab::VariantRecord skipped{.id = "a", .status = Outcome::skipped};
  skipped.skip             = lab::Skip{"needs_cuda", "a GPU"};
  lab::VariantRecord other = skipped;
  other.skip               = lab::Skip{"needs_memory", "1 TiB"};
  const lab::PointRecord point{.variants = {skipped, skipped}}, mixed{.variants = {skipped, other}};
  const Table table = result_table({.experiments = {{.id = "ch01/x", .points = {point, point}},
                                                    {.id = "ch02/y", .points = {mixed}},
                                                    {.id = "ch03/z", .points = {point}}}});
  ASSERT_EQ(table.rows.size(), 3u);  // y's two, and one for x and z
  EXPECT_EQ(cell(table, 2, "experiment"), "ch01/x and 1 more");
  EXPECT_EQ(cell(table, 2, "verdict"), "skipped: needs_cuda: a GPU");
}

TEST(ResultTable, SaysWhatWasMeasuredAndWhatWasNot) {
  const Table table = result_table(run());
  ASSERT_EQ(table.rows.size(), 5u);
  EXPECT_EQ(cell(table, 0, "experiment"), "ch07/x?n=64");
  EXPECT_EQ(cell(table, 0, "verdict"), "baseline");
  EXPECT_EQ(cell(table, 0, "ratio [95 %]"), "");
  EXPECT_EQ(cell(table, 1, "verdict"), "FASTER");
  EXPECT_NE(cell(table, 1, "time [95 %]").find("1.00 µs"), std::string::npos)
      << cell(table, 1, "time [95 %]");
  EXPECT_NE(cell(table, 1, "prediction").find("FAILED"), std::string::npos);
  EXPECT_EQ(cell(table, 2, "verdict"), "skipped: needs_library: libopenblas.so.0");
  EXPECT_EQ(cell(table, 3, "verdict"), "wrong: caught by fresh_inputs");
  EXPECT_EQ(cell(table, 3, "time [95 %]"), "");
  EXPECT_EQ(cell(table, 4, "verdict"), "crashed: ended by signal 11");
}

TEST(ResultTable, ASkipNamesTheRungBelowThatRan) {
  EXPECT_EQ(skips_text(run(), 200),
            "skipped: 1 variant of ch07/x: needs_library: libopenblas.so.0; ch07/x/tiled runs here\n");
}

TEST(ResultTable, AFailedControlIsVisible) {
  lab::RunRecord advisory              = run();
  advisory.experiments[0].points[0].aa = lab::AaControl{1.02, 1.05, true};
  EXPECT_EQ(cell(result_table(advisory), 1, "verdict"), "FASTER (advisory)");
  EXPECT_EQ(cell(result_values(advisory), 1, "advisory"), "true");
}

TEST(ResultValues, ArePlainNumbers) {
  const Table table = result_values(run());
  ASSERT_EQ(table.rows.size(), 5u);
  EXPECT_EQ(cell(table, 1, "time_ns"), "1000");
  EXPECT_EQ(cell(table, 1, "ratio_lo"), "1.98");
  EXPECT_EQ(cell(table, 1, "at"), "n=64");
  EXPECT_EQ(cell(table, 1, "bytes_per_s"), "1e+09");
  EXPECT_EQ(cell(table, 1, "held"), "false");
  EXPECT_EQ(cell(table, 2, "reason"), "needs_library: libopenblas.so.0");
  EXPECT_EQ(cell(table, 2, "time_ns"), "");
  EXPECT_EQ(cell(table, 4, "status"), "crashed");
}

TEST(CheckTable, NamesTheDefence) {
  const Table table = check_table(run());
  EXPECT_EQ(cell(table, 1, "status"), "right");
  EXPECT_EQ(cell(table, 3, "why"), "caught by fresh_inputs: out(3) is 1, expected 2");
  EXPECT_EQ(cell(table, 4, "status"), "crashed");
}

TEST(Tally, CountsSkipsAndFailures) {
  const std::string text = tally_text(run());
  EXPECT_NE(text.find("2 experiments: 1 faster"), std::string::npos) << text;
  EXPECT_NE(text.find("1 skipped"), std::string::npos) << text;
  EXPECT_NE(text.find("2 FAILED"), std::string::npos) << text;
}

}  // namespace
}  // namespace fathom::cli
