#include "cli/report_context.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

class ReportContextTest : public testing::Test {
 protected:
  ReportContextTest() {
    std::string name = (fs::temp_directory_path() / "fathom_report_XXXXXX").string();
    root_            = fs::canonical(mkdtemp(name.data()));
  }
  ~ReportContextTest() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
};

lab::RunRecord run_of(double ratio) {
  lab::VariantRecord base{.id = "naive", .kind = "baseline", .time_ns = lab::Spread{2000, 1990, 2010}};
  lab::VariantRecord tiled{.id = "tiled", .kind = "optimized", .time_ns = lab::Spread{1000, 995, 1005}};
  tiled.ratio = lab::Ratio{ratio, ratio * 0.999, ratio * 1.001};
  lab::PointRecord point{
      .at = lab::Point({{"n", int64_t{64}}}), .baseline = "naive", .variants = {base, tiled}};
  lab::RunRecord run{.label = "ch07", .started = "2026-01-02T03:04:05Z", .machine = "box"};
  run.experiments = {{.id = "ch07/x", .points = {point}}};
  return run;
}

TEST_F(ReportContextTest, NotesAndSourcesAreThoseOfTheTree) {
  lab::ExperimentInfo experiment;
  experiment.id     = "ch07/x";
  experiment.folder = "experiments/ch07_memory/x";
  for (const char* id : {"naive", "nowhere", "tiled", "op"}) experiment.variants.emplace_back().id = id;
  experiment.variants[3].op = "kernels/norm/x.cu";
  write("experiments/ch07_memory/x/notes.md", "# x\n");
  write("experiments/ch07_memory/x/naive.cpp", "a\n");
  write("experiments/ch07_memory/x/tiled.cu", "b\n");
  write("src/kernels/norm/x.cu", "c\n");
  const auto text = experiment_text(root_.string(), experiment);
  EXPECT_EQ(text.notes, "# x\n");
  ASSERT_EQ(text.variants.size(), 3u) << "a variant without a file is left out";
  EXPECT_EQ(text.variants[0].file, "experiments/ch07_memory/x/naive.cpp");
  EXPECT_EQ(text.variants[1].text, "b\n");
  EXPECT_FALSE(text.variants[1].is_op);
  EXPECT_EQ(text.variants[2].file, "src/kernels/norm/x.cu");
  EXPECT_TRUE(text.variants[2].is_op);
}

TEST_F(ReportContextTest, TheRunIsComparedWithTheRecordsOfItsMachine) {
  const std::string results = (root_ / "results").string();
  EXPECT_FALSE(reference_of(run_of(2), results));
  ASSERT_EQ(lab::update_expectations(results, run_of(2), {.written_by = "me", .commit = "abc"}).paths.size(),
            1u);
  const auto reference = reference_of(run_of(3), results);
  ASSERT_TRUE(reference);
  EXPECT_EQ(reference->folder, results + "/box");
  EXPECT_EQ(reference->records.at("ch07/x").commit, "abc");
  ASSERT_EQ(reference->comparison.variants.size(), 2u);
  EXPECT_NEAR(reference->comparison.variants[1].ratio_change->median, 1.5, 0.01) << "the run over the record";
  lab::RunRecord elsewhere = run_of(2);
  elsewhere.machine        = "another";
  EXPECT_FALSE(reference_of(elsewhere, results));
}

}  // namespace
}  // namespace fathom::cli
