#include "cli/aa_summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom::cli {
namespace {

lab::ExperimentRecord experiment(std::string id, std::string again, std::string heavier,
                                 double extra_calls = 1) {
  lab::PointRecord point{.baseline = "plain"};
  point.variants.push_back({.id = "plain", .kind = "baseline"});
  point.variants.push_back(
      {.id = "plain:again", .ratio = lab::Ratio{1.03, 1.025, 1.04}, .verdict = std::move(again)});
  point.variants.push_back({.id = "plain:heavier", .verdict = std::move(heavier)});
  point.variants.back().metrics["extra_calls"] = {extra_calls, "lower"};
  return {.id = std::move(id), .points = {point}};
}

lab::ExperimentRecord session(std::string id, bool advisory) {
  lab::PointRecord point{.cache = "session", .baseline = "plain", .aa = lab::AaControl{0.9, 0.95, advisory}};
  point.variants.push_back({.id = "plain", .kind = "baseline"});
  return {.id = std::move(id), .points = {point}};
}

TEST(AaSummary, SameAndInconclusiveAreRight) {
  const AaSummary seen =
      aa_summary({.experiments = {experiment("ch01/a", "SAME", "SLOWER"),
                                  experiment("ch01/b", "INCONCLUSIVE", "SLOWER"), session("ch15/c", false)}});
  EXPECT_EQ(seen.points, 3);
  EXPECT_EQ(seen.heavier, 2);
  EXPECT_TRUE(seen.holds());
  EXPECT_EQ(aa_text(seen),
            "A/A: 0 false verdicts at 3 points; 5 % of extra work found at 2 of 2 (100 %)\n"
            "  the extra work is more of the same calls at 2, found at 2; elsewhere arithmetic\n");
}

TEST(AaSummary, ADifferenceFromItselfIsFalse) {
  const AaSummary seen =
      aa_summary({.experiments = {experiment("ch01/a", "FASTER", "SLOWER"),
                                  experiment("ch01/b", "SLOWER", "SLOWER"), session("ch15/c", true)}});
  EXPECT_EQ(seen.wrong.size(), 3u);
  EXPECT_FALSE(seen.holds());
  EXPECT_NE(aa_text(seen).find("false   ch01/a/plain:again: 1.030 [1.025, 1.040]"), std::string::npos)
      << aa_text(seen);
}

TEST(AaSummary, AnAccusedBaselineIsFalse) {
  lab::ExperimentRecord accused{.id = "ch15/g", .points = {{.baseline = "plain"}}};
  accused.points[0].variants = {
      {.id = "plain", .kind = "baseline", .status = lab::Outcome::invalid, .caught_by = "fresh_inputs"}};
  const lab::RunRecord run{.machine = "m", .experiments = {accused}};
  const AaSummary seen = aa_summary(run);
  EXPECT_EQ(seen.wrong, std::vector<std::string>{"ch15/g/plain: caught by fresh_inputs"});
  EXPECT_TRUE(seen.none.empty());
  EXPECT_FALSE(seen.holds());
  const nlohmann::json json = aa_json(run);
  EXPECT_EQ(json["compared"], 1);
  EXPECT_EQ(json["false_verdicts"], nlohmann::json(seen.wrong));
}

TEST(AaSummary, NineOfTenMustBeFound) {
  lab::RunRecord run;
  for (int i = 0; i < 9; ++i) run.experiments.push_back(experiment("ch01/a", "SAME", "SLOWER"));
  run.experiments.push_back(experiment("ch01/b", "SAME", "INCONCLUSIVE"));
  EXPECT_TRUE(aa_summary(run).holds()) << aa_summary(run).found();
  run.experiments.push_back(experiment("ch01/b", "SAME", "SAME"));
  EXPECT_FALSE(aa_summary(run).holds()) << aa_summary(run).found();
}

TEST(AaSummary, MoreCallsAreCountedApartFromArithmetic) {
  const lab::RunRecord run{.machine     = "m",
                           .experiments = {experiment("ch01/a", "SAME", "SLOWER", 1),
                                           experiment("ch01/b", "SAME", "INCONCLUSIVE", 3),
                                           experiment("ch01/c", "SAME", "SLOWER", 0),
                                           session("ch15/d", true),
                                           {.id = "ch06/gpu", .status = lab::Outcome::skipped}}};
  const AaSummary seen = aa_summary(run);
  EXPECT_EQ(seen.calls, 2);
  EXPECT_EQ(seen.calls_found, 1);

  const nlohmann::json json = aa_json(run);
  EXPECT_EQ(json["compared"], 4);
  EXPECT_EQ(json["false_verdicts"].size(), 1u);
  EXPECT_EQ(json["injected_slowdown"], 3);
  EXPECT_EQ(json["detected"], 2);
  EXPECT_EQ(json["missed"].size(), 1u);
  EXPECT_EQ(json["not_compared"], nlohmann::json::array({"ch06/gpu"}));
  ASSERT_EQ(json["points"].size(), 4u);
  EXPECT_EQ(json["points"][0]["a_a"]["hi"], 1.04);
  EXPECT_EQ(json["points"][0]["injected_slowdown"]["extra"], "calls");
  EXPECT_EQ(json["points"][2]["injected_slowdown"]["extra"], "arithmetic");
  EXPECT_EQ(json["points"][3]["a_a"]["verdict"], "differs");
  EXPECT_FALSE(json["points"][3].contains("injected_slowdown"));
}

TEST(AaSummary, PiecesOfARunMakeOneRecord) {
  const lab::RunRecord first{.machine     = "m",
                             .experiments = {experiment("ch01/a", "FASTER", "SLOWER"),
                                             experiment("ch01/ab", "SAME", "SAME"),
                                             {.id = "ch06/gpu", .status = lab::Outcome::skipped}}};
  const lab::RunRecord second{
      .machine = "m", .experiments = {experiment("ch01/a", "SAME", "SLOWER"), session("ch15/d", true)}};
  const nlohmann::json earlier = aa_json(first);
  nlohmann::json json          = aa_json(second);
  add_earlier(json, earlier, second);
  EXPECT_EQ(json["compared"], 3) << "ch01/a once, as the later run has it";
  EXPECT_EQ(json["false_verdicts"], nlohmann::json::array({"ch15/d/plain: [0.900, 0.950]"}));
  EXPECT_EQ(json["injected_slowdown"], 2);
  EXPECT_EQ(json["missed"], nlohmann::json::array({"ch01/ab/plain:heavier: SAME"}));
  EXPECT_EQ(json["not_compared"], nlohmann::json::array({"ch06/gpu"}));
}

TEST(AaSummary, NamesWhatWasNotCompared) {
  const AaSummary seen = aa_summary({.experiments = {{.id = "ch06/gpu", .status = lab::Outcome::skipped}}});
  EXPECT_EQ(seen.none, std::vector<std::string>{"ch06/gpu"});
  EXPECT_TRUE(seen.holds()) << "nothing was claimed";
}

}  // namespace
}  // namespace fathom::cli
