#include "lab/history.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string name = (fs::temp_directory_path() / "fathom_history_XXXXXX").string();
    folder_          = mkdtemp(name.data());
  }
  ~HistoryTest() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "state/history.sqlite").string(); }

  fs::path folder_;
};

RunRecord run_on(int day, double ns, std::optional<double> ratio = std::nullopt) {
  VariantRecord variant{.id = "tiled", .time_ns = Spread{ns, ns, ns}};
  if (ratio) variant.ratio = Ratio{*ratio, *ratio, *ratio};
  char started[32];
  std::snprintf(started, sizeof started, "2026-01-%02dT00:00:00Z", day);
  return {.label       = "nightly",
          .started     = started,
          .machine     = "box",
          .manifest    = R"({"commit": "abc"})",
          .experiments = {{.id          = "ch07/x",
                           .source_hash = "0a",
                           .points      = {{.at = Point({{"n", int64_t{64}}}), .variants = {variant}}}}}};
}

TEST_F(HistoryTest, KeepsEveryRunInOrder) {
  for (const int day : {2, 1, 3}) ASSERT_TRUE(append_history(path(), run_on(day, 100 + day, 2.0)));
  const auto all = read_history(path());
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 1u);
  const Series& series = all->front();
  EXPECT_EQ(series.experiment + "/" + series.variant + "?" + series.at, "ch07/x/tiled?n=64");
  EXPECT_EQ(series.machine, "box");
  ASSERT_EQ(series.points.size(), 3u);
  EXPECT_EQ(series.points[0].started, "2026-01-01T00:00:00Z");
  EXPECT_EQ(series.points[2].time_ns, 103);
  EXPECT_EQ(series.points[2].ratio, 2.0);
  EXPECT_EQ(series.points[0].commit, "abc");
  EXPECT_EQ(series.points[0].source_hash, "0a");
}

TEST_F(HistoryTest, ARunIsRememberedOnce) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(append_history(path(), run_on(1, 100)));
  EXPECT_EQ(read_history(path())->front().points.size(), 1u);
}

TEST_F(HistoryTest, WhatHasNoTimeIsNotInIt) {
  RunRecord run = run_on(1, 100);
  run.experiments[0].points[0].variants.push_back({.id = "skipped", .status = Outcome::skipped});
  run.experiments[0].points[0].variants.push_back(
      {.id = "invalid", .time_ns = Spread{1, 1, 1}, .verdict = "INVALID"});
  ASSERT_TRUE(append_history(path(), run));
  EXPECT_EQ(read_history(path())->size(), 1u);
  ASSERT_TRUE(append_history(path(), RunRecord{}));
}

TEST_F(HistoryTest, Filters) {
  for (int day = 1; day <= 5; ++day) ASSERT_TRUE(append_history(path(), run_on(day, day)));
  EXPECT_TRUE(read_history(path(), {.machine = "another"})->empty());
  EXPECT_EQ(read_history(path(), {.machine = "box"})->size(), 1u);
  EXPECT_EQ(read_history(path(), {.pattern = "x/tiled\\?n=64"})->size(), 1u);
  EXPECT_TRUE(read_history(path(), {.pattern = "naive"})->empty());
  EXPECT_FALSE(read_history(path(), {.pattern = "["}));
  const auto last = read_history(path(), {.last = 2});
  ASSERT_EQ(last->front().points.size(), 2u);
  EXPECT_EQ(last->front().points[0].time_ns, 4);
}

TEST_F(HistoryTest, NoFileIsAnEmptyHistory) { EXPECT_TRUE(read_history(path())->empty()); }

TEST_F(HistoryTest, ADamagedFileIsNamedWithARemedy) {
  fs::create_directories(fs::path(path()).parent_path());
  std::ofstream(path()) << std::string(4096, 'x');
  const auto read = read_history(path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find(path()), std::string::npos);
  EXPECT_NE(read.error().message.find("move it away"), std::string::npos) << read.error().message;
  EXPECT_FALSE(append_history(path(), run_on(1, 100)));
}

TEST_F(HistoryTest, ATruncatedFileIsAnErrorNotACrash) {
  for (int day = 1; day <= 20; ++day) ASSERT_TRUE(append_history(path(), run_on(day, day)));
  fs::resize_file(path(), fs::file_size(path()) / 2);
  const auto read = read_history(path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("damaged"), std::string::npos) << read.error().message;
}

TEST_F(HistoryTest, AnUnwritablePlaceSaysWhere) {
  std::ofstream(folder_ / "state") << "a file where a folder should be";
  const Status status = append_history(path(), run_on(1, 100));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("FATHOM_HISTORY"), std::string::npos) << status.error().message;
}

TEST_F(HistoryTest, ALockedDatabaseSaysSoAndWritesNothing) {
  ASSERT_TRUE(append_history(path(), run_on(1, 100)));
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  const Status status = append_history(path(), run_on(2, 100));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("another program holds it"), std::string::npos)
      << status.error().message;
  sqlite3_close(other);
  EXPECT_EQ(read_history(path())->front().points.size(), 1u);
}

TEST_F(HistoryTest, ANewerLayoutIsLeftAlone) {
  ASSERT_TRUE(append_history(path(), run_on(1, 100)));
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path().c_str(), &other), SQLITE_OK);
  sqlite3_exec(other, "PRAGMA user_version = 99", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  const Status status = append_history(path(), run_on(2, 100));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("newer fathom"), std::string::npos);
}

TEST(HistoryPath, FollowsTheXdgFolders) {
  unsetenv("FATHOM_HISTORY");
  setenv("XDG_STATE_HOME", "/somewhere", 1);
  EXPECT_EQ(history_path(), "/somewhere/fathom/history.sqlite");
  unsetenv("XDG_STATE_HOME");
  setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(history_path(), "/home/ada/.local/state/fathom/history.sqlite");
  setenv("FATHOM_HISTORY", "/elsewhere.sqlite", 1);
  EXPECT_EQ(history_path(), "/elsewhere.sqlite");
  unsetenv("FATHOM_HISTORY");
}

TEST(Changes, AStepIsFoundAndAQuietSeriesIsQuiet) {
  Series step{.machine = "box", .experiment = "ch07/x", .variant = "tiled", .at = "", .points = {}};
  for (int i = 0; i < 24; ++i) {
    HistoryPoint point;
    point.time_ns = (i < 12 ? 100 : 150) + i % 3;
    point.ratio   = 2 + 0.01 * (i % 3);
    step.points.push_back(point);
  }
  const SeriesChanges changes = changes_of(step);
  ASSERT_EQ(changes.time.size(), 1u);
  EXPECT_EQ(changes.time[0].index, 12);
  EXPECT_TRUE(changes.ratio.empty());  // the machine changed, the pair did not
  EXPECT_TRUE(changes_of(Series{}).time.empty());
}

}  // namespace
}  // namespace fathom::lab
