#include "lab/expectation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

class ExpectationTest : public testing::Test {
 protected:
  ExpectationTest() {
    std::string name = (fs::temp_directory_path() / "fathom_expect_XXXXXX").string();
    folder_          = mkdtemp(name.data());
  }
  ~ExpectationTest() override { fs::remove_all(folder_); }
  std::string results() const { return (folder_ / "results").string(); }

  fs::path folder_;
};

ExperimentRecord experiment(std::string id, double ratio, std::string hash = "aaaa") {
  VariantRecord baseline{
      .id = "naive", .kind = "baseline", .time_ns = Spread{1000, 999, 1001}, .limit_rate = 1e9};
  VariantRecord tiled{.id      = "tiled",
                      .kind    = "optimized",
                      .time_ns = Spread{1000 / ratio, 999 / ratio, 1001 / ratio},
                      .ratio   = Ratio{ratio, ratio * 0.999, ratio * 1.001}};
  for (int i = 0; i < 100; ++i) tiled.samples_ns.push_back(500 + i);
  return {
      .id          = std::move(id),
      .source_hash = std::move(hash),
      .points = {{.at = Point({{"n", int64_t{64}}}), .baseline = "naive", .variants = {baseline, tiled}}}};
}

RunRecord run_of(std::vector<ExperimentRecord> experiments) {
  return {.label       = "nightly",
          .started     = "2026-01-02T03:04:05Z",
          .machine     = "box",
          .manifest    = R"({"argv": ["fathom", "run"], "commit": "abc", "seed": 7})",
          .experiments = std::move(experiments)};
}

const Provenance kBy{
    .written_by = "ada", .written_at = "2026-01-02T04:00:00Z", .from_run = "nightly", .commit = "abc"};

TEST_F(ExpectationTest, WhatIsWrittenIsReadWithItsProvenance) {
  const Written written =
      update_expectations(results(), run_of({experiment("ch07/x", 2), experiment("labs/l/y", 3)}), kBy);
  ASSERT_EQ(written.paths.size(), 2u);
  EXPECT_EQ(written.paths[0], results() + "/box/ch07/x.json");
  EXPECT_EQ(written.paths[1], results() + "/box/labs/l/y.json");
  for (const std::string& path : written.paths) EXPECT_LE(fs::file_size(path), 16u * 1024);

  const auto read = read_expectations(results(), "box");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ(read->at(0).experiment, "ch07/x");
  EXPECT_EQ(read->at(0).provenance.written_by, "ada");
  EXPECT_EQ(read->at(0).provenance.from_run, "nightly");
  EXPECT_EQ(read->at(0).record.machine, "box");
  const VariantRecord& tiled = read->at(0).record.experiments[0].points[0].variants[1];
  EXPECT_TRUE(tiled.samples_ns.empty());
  EXPECT_EQ(tiled.quantiles_ns.size(), 64u);
  const auto manifest = nlohmann::json::parse(read->at(0).record.manifest);
  EXPECT_EQ(manifest["seed"], 7);
  EXPECT_FALSE(manifest.contains("argv"));  // it may hold paths of a person's machine
}

TEST_F(ExpectationTest, ARecordOfAQuickRunSaysSo) {
  RunRecord run = run_of({experiment("ch07/x", 2)});
  for (const bool quick : {true, false}) {
    run.manifest = fmt::format(R"({{"commit": "abc", "options": {{"quick": {}}}}})", quick);
    update_expectations(results(), run, kBy);
    const auto read = read_expectations(results(), "box");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(nlohmann::json::parse(read->at(0).record.manifest).contains("quick"), quick);
  }
}

TEST_F(ExpectationTest, NoFolderAndNoMachineMeanNoExpectations) {
  EXPECT_TRUE(read_expectations(results(), "box")->empty());
  update_expectations(results(), run_of({experiment("ch07/x", 2)}), kBy);
  EXPECT_TRUE(read_expectations(results(), "another")->empty());
  EXPECT_EQ(read_expectations(results(), "")->size(), 1u);
}

TEST_F(ExpectationTest, FaultyResultsAreNotRecorded) {
  ExperimentRecord wrong = experiment("ch07/wrong", 2), invalid = experiment("ch07/invalid", 2),
                   skips = experiment("ch07/skips", 2),
                   crashed{.id = "ch07/crashed", .status = Outcome::crashed};
  wrong.points[0].variants[1].status    = Outcome::wrong;
  invalid.points[0].variants[1].verdict = "INVALID";
  for (VariantRecord& variant : skips.points[0].variants) {
    variant.status = Outcome::skipped;
    variant.time_ns.reset();
  }
  const Written written = update_expectations(results(), run_of({wrong, invalid, skips, crashed}), kBy);
  EXPECT_TRUE(written.paths.empty());
  ASSERT_EQ(written.refused.size(), 4u);
  EXPECT_EQ(written.refused[0], "ch07/wrong: tiled is wrong");
  EXPECT_NE(written.refused[2].find("nothing was timed"), std::string::npos);
  EXPECT_FALSE(fs::exists(results()));
}

TEST_F(ExpectationTest, AWrongLibraryIsRecordedAsWrong) {
  ExperimentRecord with_library = experiment("ch07/x", 2);
  VariantRecord library{.id = "vendor", .kind = "library"};
  library.status      = Outcome::wrong;
  with_library.status = Outcome::wrong;
  with_library.points[0].variants.push_back(library);
  ASSERT_EQ(update_expectations(results(), run_of({with_library}), kBy).paths.size(), 1u);
  const auto read = read_expectations(results(), "box");
  ASSERT_TRUE(read) << read.error().message;
  const ExperimentRecord& recorded = read->at(0).record.experiments.at(0);
  EXPECT_EQ(recorded.status, Outcome::ok);
  EXPECT_EQ(recorded.points[0].variants[2].status, Outcome::wrong);

  with_library.points[0].variants[1].status = Outcome::wrong;  // and one of ours
  EXPECT_EQ(update_expectations(results(), run_of({with_library}), kBy).refused.size(), 1u);
}

TEST_F(ExpectationTest, ABrokenRecordIsNamed) {
  fs::create_directories(results() + "/box/ch07");
  std::ofstream(results() + "/box/ch07/x.json") << "{\"schema\": ";
  const auto read = read_expectations(results(), "box");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("ch07/x.json"), std::string::npos);
}

TEST_F(ExpectationTest, CheckFindsWhatGotWorse) {
  update_expectations(
      results(), run_of({experiment("ch07/x", 2), experiment("ch07/y", 2), experiment("ch07/z", 2)}), kBy);
  const auto expected = read_expectations(results(), "box");
  const auto same =
      check_expectations(*expected, run_of({experiment("ch07/x", 2), experiment("ch07/y", 2.005)}));
  ASSERT_TRUE(same);
  EXPECT_FALSE(same->missed());
  EXPECT_EQ(same->not_run, std::vector<std::string>{"ch07/z"});
  EXPECT_TRUE(same->stale.empty());

  const auto worse = check_expectations(
      *expected,
      run_of({experiment("ch07/x", 1.7), experiment("ch07/y", 2, "bbbb"), experiment("ch07/new", 2)}));
  EXPECT_TRUE(worse->missed());
  EXPECT_EQ(worse->unexpected, std::vector<std::string>{"ch07/new"});
  EXPECT_EQ(worse->stale, std::vector<std::string>{"ch07/y"});
  EXPECT_FALSE(
      check_expectations(*expected, run_of({experiment("ch07/x", 1.7, "bbbb")}))->missed());  // stale
  EXPECT_FALSE(check_expectations(*expected, run_of({experiment("ch07/x", 3)}))->missed());
  EXPECT_FALSE(check_expectations({}, run_of({experiment("ch07/x", 1)}))->missed());
}

}  // namespace
}  // namespace fathom::lab
