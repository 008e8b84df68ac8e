#include "cli/diagnosed_results.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/report_context.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "lab/expectation.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

// A copy of a GPU at 94 % of the rate that another experiment of its machine reached, and one at a fifth.
lab::RunRecord run_on(const std::string& machine, double ratio = 2) {
  const auto variant = [](const char* id, const char* kind, double ns, double share) {
    lab::VariantRecord v{.id = id, .kind = kind};
    v.time_ns        = lab::Spread{ns, ns * 0.999, ns * 1.001};
    v.share_of_limit = share;
    v.limit_rate     = 1e12;
    v.bytes_read     = 1000;
    return v;
  };
  lab::PointRecord point{
      .at       = lab::Point({{"n", int64_t{64}}}),
      .limit    = "read bandwidth of DRAM",
      .baseline = "naive",
      .variants = {variant("naive", "baseline", 5000, 0.2), variant("tiled", "optimized", 1000, 0.94)}};
  point.variants[1].ratio = lab::Ratio{ratio, ratio * 0.999, ratio * 1.001};
  lab::RunRecord run{
      .label = "ch07", .started = "2026-01-02T03:04:05Z", .machine = machine, .manifest = "{}"};
  run.experiments = {{.id = "ch07/x", .backend = "cuda", .points = {point}}};
  return run;
}

class DiagnosedResults : public testing::Test {
 protected:
  DiagnosedResults() {
    std::string name = (fs::temp_directory_path() / "fathom_diagnose_XXXXXX").string();
    root_            = fs::canonical(mkdtemp(name.data()));
    results_         = (root_ / "results").string();
    for (const auto& [machine, ratio] : {std::pair("box", 2.0), std::pair("other", 3.0)})
      EXPECT_EQ(lab::update_expectations(results_, run_on(machine, ratio), {.written_by = "me"}).paths.size(),
                1U);
  }
  ~DiagnosedResults() override { fs::remove_all(root_); }
  Diagnosed from(std::vector<std::string> names, const std::string& machine = "") const {
    return diagnosed_results({.names     = std::move(names),
                              .artifacts = (root_ / "artifacts").string(),
                              .results   = results_,
                              .machine   = machine});
  }

  fs::path root_;
  std::string results_;
};

TEST_F(DiagnosedResults, OfARecordAMachineAndARun) {
  fs::create_directories(root_ / "artifacts/20260102T030405Z_x");
  write_results((root_ / "artifacts/20260102T030405Z_x").string(), run_on("a run's"));
  for (const auto& [path, machine] :
       {std::pair(results_ + "/box/ch07/x.json", "box"), std::pair(results_ + "/other", "other"),
        std::pair(results_ + "/other/", "other"),
        std::pair((root_ / "artifacts/20260102T030405Z_x").string(), "a run's")}) {
    const Diagnosed diagnosed = from({path});
    EXPECT_EQ(diagnosed.machine, machine) << path;
    ASSERT_EQ(diagnosed.results.size(), 2U) << path;
    EXPECT_EQ(diagnosed.results[0].id, "ch07/x/naive?n=64");
    EXPECT_EQ(diagnosed.results[0].target, "ch07/x/naive");
    EXPECT_EQ(diagnosed.results[0].diagnosis.cause(), "");
    EXPECT_EQ(diagnosed.results[1].diagnosis.cause(), "at_memory_limit");
  }
  // Without a path the newest run comes before the records.
  EXPECT_EQ(from({}).machine, "a run's");
  EXPECT_EQ(from({}, "other").machine, "other") << "a machine that is named has records";
}

TEST_F(DiagnosedResults, NamesWhatIsNotThere) {
  const auto error = [&](std::vector<std::string> names, const std::string& machine = "") -> std::string {
    try {
      (void)from(std::move(names), machine);
    } catch (const UsageError& usage) {
      return usage.what();
    }
    return "";
  };
  fs::create_directories(root_ / "empty");
  EXPECT_NE(error({(root_ / "empty").string()}).find("holds neither a run nor records"), std::string::npos);
  EXPECT_NE(error({results_}).find("holds records of box and other machines"), std::string::npos);
  EXPECT_NE(error({results_ + "/box", results_ + "/other"}).find("two sources"), std::string::npos);
  EXPECT_NE(error({}, "nowhere").find("of nowhere"), std::string::npos);
}

TEST_F(DiagnosedResults, VariantsWithoutATimeHaveNoDiagnosis) {
  lab::RunRecord run                              = run_on("box");
  run.experiments[0].points[0].variants[0].status = lab::Outcome::wrong;
  run.experiments[0].points[0].variants[1].time_ns.reset();
  EXPECT_TRUE(diagnosed_results(run, {}).empty());
}

TEST_F(DiagnosedResults, GainsAreThoseOfTheMachineWhereItHasSome) {
  const std::string id = "ch07/x/tiled";
  EXPECT_EQ(recorded_gains(results_, "box").at(id).machine, "box");
  EXPECT_EQ(recorded_gains(results_, "box").at(id).ratio, 2);
  EXPECT_EQ(recorded_gains(results_, "third").at(id).ratio, 3) << "the largest of any machine";
  EXPECT_TRUE(recorded_gains((root_ / "nothing").string(), "box").empty());
}

TEST_F(DiagnosedResults, AReportHasASentenceForEachResult) {
  const auto context = report_context(run_on("box"), results_);
  EXPECT_TRUE(context.diagnoses.at("ch07/x/tiled?n=64")
                  .starts_with("memory is at the rate that was measured in the same rounds: "))
      << context.diagnoses.at("ch07/x/tiled?n=64");
  EXPECT_EQ(context.diagnoses.at("ch07/x/naive?n=64"), "not known: the record has no counters");
}

}  // namespace
}  // namespace fathom::cli
