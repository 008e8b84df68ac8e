#include "cli/run_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/usage_error.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    std::string name = (fs::temp_directory_path() / "fathom_runs_XXXXXX").string();
    root_            = mkdtemp(name.data());
    artifacts_       = (root_ / "artifacts").string();
    setenv("XDG_CACHE_HOME", root_.c_str(), 1);  // hides the measured ceilings of this machine
  }
  ~RunFolderTest() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(root_);
  }
  fs::path root_;
  std::string artifacts_;
};

lab::RunRecord run(double ns) {
  lab::VariantRecord tiled{.id = "tiled", .kind = "optimized", .time_ns = lab::Spread{ns, ns, ns}};
  tiled.ratio      = lab::Ratio{2, 1.9, 2.1};
  tiled.samples_ns = {ns, ns, ns};
  tiled.metrics    = {{"bytes_per_s", {5e9, "higher"}}};
  lab::PointRecord point{.at = lab::Point({{"n", int64_t{64}}}), .variants = {tiled}};
  lab::RunRecord record{.label = "ch07", .started = "2026-01-02T03:04:05Z", .machine = "box"};
  record.manifest    = R"({"argv": ["fathom", "run"]})";
  record.experiments = {{.id = "ch07/x", .points = {point}}};
  return record;
}

TEST_F(RunFolderTest, NamesAreTimesAndLabelsAndNeverTaken) {
  const std::string first = make_run_folder(artifacts_, "2026-01-02T03:04:05Z", "ch07:x/*?");
  EXPECT_EQ(fs::path(first).filename(), "20260102T030405Z_ch07_x___");
  EXPECT_EQ(make_run_folder(artifacts_, "2026-01-02T03:04:05Z", "ch07:x/*?"), first + "-2");
  std::ofstream(root_ / "file") << "x";
  EXPECT_THROW(make_run_folder((root_ / "file").string(), "2026-01-02T03:04:05Z", "x"), UsageError);
}

TEST_F(RunFolderTest, HoldsEverythingAndIsFoundAgain) {
  EXPECT_THROW(find_run("", artifacts_), UsageError);
  const std::string old = make_run_folder(artifacts_, "2026-01-01T00:00:00Z", "old");
  write_results(old, run(1000));
  const std::string folder = make_run_folder(artifacts_, "2026-01-02T03:04:05Z", "ch07");
  write_run(artifacts_, folder, run(2000));
  for (const char* file : {"results.json", "summary.json", "manifest.json", "report.html",
                           "ch07/x/tiled/metrics.json", "../index.html"})
    EXPECT_TRUE(fs::exists(fs::path(folder) / file)) << file;

  EXPECT_EQ(run_folders(artifacts_), (std::vector<std::string>{old, folder}));
  const FoundRun newest = find_run("", artifacts_);
  EXPECT_EQ(newest.path, folder);
  EXPECT_EQ(newest.run.experiments[0].points[0].variants[0].samples_ns.size(), 3u);
  EXPECT_EQ(find_run(old, artifacts_).run.experiments[0].points[0].variants[0].time_ns->median, 1000);
  EXPECT_THROW(find_run("nowhere", artifacts_), UsageError);
  const auto summary = lab::read_run(folder + "/summary.json");
  ASSERT_TRUE(summary);
  EXPECT_TRUE(summary->experiments[0].points[0].variants[0].samples_ns.empty());
}

TEST_F(RunFolderTest, MetricsOfAFolderBecomeOneTable) {
  const std::string folder = make_run_folder(artifacts_, "2026-01-02T03:04:05Z", "ch07");
  write_run(artifacts_, folder, run(2000));
  const Table table = metrics_table(folder);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0],
            (std::vector<std::string>{"ch07/x", "tiled", "optimized", "n=64", "time_ns", "2000", "lower"}));
  EXPECT_EQ(table.rows[2], (std::vector<std::string>{"ch07/x", "tiled", "optimized", "n=64", "bytes_per_s",
                                                     "5e+09", "higher"}));
  std::ofstream(folder + "/ch07/x/tiled/metrics.json") << "{\"points\": 3}";
  EXPECT_THROW(metrics_table(folder), UsageError);
  std::ofstream(folder + "/ch07/x/tiled/metrics.json") << "{\"points\": ";
  EXPECT_THROW(metrics_table(folder), UsageError);
  EXPECT_THROW(metrics_table(artifacts_ + "/none"), UsageError);
}

TEST_F(RunFolderTest, ABrokenRunDoesNotHideTheOthersFromTheLogbook) {
  const std::string good = make_run_folder(artifacts_, "2026-01-02T03:04:05Z", "good");
  write_run(artifacts_, good, run(2000));
  const std::string broken = make_run_folder(artifacts_, "2026-01-03T03:04:05Z", "broken");
  for (const char* file : {"results.json", "summary.json", "report.html"})
    std::ofstream(broken + "/" + file) << "{";
  write_index(artifacts_);
  std::ostringstream index;
  index << std::ifstream(artifacts_ + "/index.html").rdbuf();
  EXPECT_NE(index.str().find("20260102T030405Z_good/report.html"), std::string::npos);
  EXPECT_EQ(index.str().find("broken"), std::string::npos);
}

}  // namespace
}  // namespace fathom::cli
