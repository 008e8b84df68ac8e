#include "cli/run_summary.h"

#include <gtest/gtest.h>

#include "cli/result_table.h"

namespace fathom::cli {
namespace {

using lab::Outcome;

lab::ExperimentRecord experiment(std::string id, double ratio, std::string verdict = "FASTER",
                                 bool advisory = false) {
  lab::PointRecord point{
      .limit = "copy bandwidth of DRAM", .baseline = "plain", .aa = lab::AaControl{0.99, 1.01, advisory}};
  point.variants.push_back({.id = "plain", .kind = "baseline", .time_ns = lab::Spread{2000, 1990, 2010}});
  point.variants.push_back({.id             = "tiled",
                            .kind           = "optimized",
                            .time_ns        = lab::Spread{2000 / ratio},
                            .ratio          = lab::Ratio{ratio, ratio * 0.99, ratio * 1.01},
                            .verdict        = std::move(verdict),
                            .share_of_limit = 0.5});
  return {.id = std::move(id), .points = {point}};
}

lab::ExperimentRecord without_gpu(std::string id) {
  lab::VariantRecord a{.id = "a", .status = Outcome::skipped}, b{.id = "b", .status = Outcome::skipped};
  a.skip = b.skip = lab::Skip{"needs_cuda", "a GPU"};
  const lab::PointRecord point{.variants = {a, b}};
  return {.id = std::move(id), .backend = "cuda", .points = {point, point}};
}

TEST(LargestGains, AreFasterByAVerdictThatCounts) {
  const auto gains =
      largest_gains({.experiments = {experiment("ch01/a", 2), experiment("ch02/b", 8),
                                     experiment("ch03/c", 9, "INCONCLUSIVE"),
                                     experiment("ch04/d", 7, "FASTER", true), experiment("ch05/e", 4)}},
                    2);
  ASSERT_EQ(gains.size(), 2u);
  EXPECT_EQ(gains[0], "8.00× [7.92, 8.08]  ch02/b/tiled, 50.0 % of the limit");
  EXPECT_NE(gains[1].find("ch05/e/tiled"), std::string::npos) << gains[1];
}

TEST(Skips, AreOneLineForEachReason) {
  EXPECT_EQ(skips_text({.experiments = {without_gpu("ch06/a"), without_gpu("ch06/b"), experiment("ch01/a", 2),
                                        without_gpu("ch06/c"), without_gpu("ch06/d")}},
                       100),
            "skipped: 8 variants of 4 experiments: needs_cuda: a GPU\n");
  EXPECT_EQ(skips_text({.experiments = {without_gpu("ch06/a")}}, 100),
            "skipped: 2 variants of ch06/a: needs_cuda: a GPU\n");
  EXPECT_EQ(skips_text({.experiments = {experiment("ch01/a", 2)}}, 100), "");
}

TEST(ResultText, FoldsSkips) {
  const std::string text =
      result_text({.experiments = {experiment("ch01/a", 2), without_gpu("ch06/b")}}, 100);
  EXPECT_NE(text.find("ch01/a\n  plain"), std::string::npos) << text;
  EXPECT_EQ(text.find("ch06/b\n"), std::string::npos) << text;
  EXPECT_NE(text.find("skipped: 2 variants of ch06/b"), std::string::npos) << text;
}

TEST(CheckText, ShowsWhatWasWrongAndCountsTheRest) {
  lab::RunRecord run{
      .experiments = {experiment("ch01/a", 2), experiment("ch02/a", 2), without_gpu("ch06/b")}};
  run.experiments[0].points[0].variants[1].status = Outcome::wrong;
  run.experiments[0].points[0].variants[1].detail = "out(3) is 1, expected 2";
  const std::string text                          = check_text(run, 100);
  EXPECT_NE(text.find("right    plain\n"), std::string::npos) << text;
  EXPECT_NE(text.find("wrong    tiled: out(3) is 1, expected 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("skipped: 2 variants of ch06/b"), std::string::npos) << text;
  EXPECT_LT(text.find("ch02/a"), text.find("wrong")) << "what failed is last:\n" << text;
}

TEST(RunSummary, IsAtMostTenLinesThatFit) {
  lab::RunRecord run;
  for (const char* id : {"ch01/a", "ch02/b", "ch03/c", "ch05/d"})
    run.experiments.push_back(experiment(id, 3));
  for (const char* id : {"ch06/a", "ch06/b", "ch06/c", "ch06/d"}) run.experiments.push_back(without_gpu(id));
  const std::string text = run_summary(run, 80);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n') + 1, 10) << text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    EXPECT_LE(display_width(text.substr(begin, end - begin)), 80);
    begin = end + 1;
  }
  EXPECT_NE(text.find("this machine"), std::string::npos) << text;
  EXPECT_NE(text.find("3.00×"), std::string::npos) << text;
  EXPECT_NE(text.find("needs_cuda"), std::string::npos) << text;
  EXPECT_EQ(run_summary({.experiments = {experiment("ch01/a", 2), experiment("ch01/b", 2)}}), "");
}

}  // namespace
}  // namespace fathom::cli
