#include "profile/profile_history.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace fathom::profile {
namespace {

using namespace std::chrono_literals;

class HistoryFolder {
 public:
  HistoryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fathom-history-XXXXXX").string();
    path_            = mkdtemp(name.data());
  }
  ~HistoryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name) const { std::ofstream(path_ / name) << name; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

TEST(ProfileHistory, KeepsTheLatestAndTouchesNothingElse) {
  const HistoryFolder folder;
  for (const char* name : {"cpu-20200101T000000Z.pb", "cpu-20200101T000100Z.pb", "cpu.txt", "notes.pb"})
    folder.write(name);
  {
    CpuProfiler profiler;
    ASSERT_TRUE(keep_profiles(profiler, {.folder = folder.path(), .window = 1100ms, .keep = 2}));
    const auto first_has_gone = [&] { return folder.files()[0] != "cpu-20200101T000000Z.pb"; };
    for (int tries = 0; tries < 3000 && !first_has_gone(); ++tries) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(first_has_gone());
  }
  // The last window was cut short.
  const auto files = folder.files();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[2], "cpu.txt");
  EXPECT_EQ(files[3], "notes.pb");
  for (const size_t f : {0u, 1u}) {
    EXPECT_GT(files[f], "cpu-2026") << files[f];
    std::ifstream in(folder.path() / files[f]);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(text.find("nanoseconds"), std::string::npos);
  }
}

TEST(ProfileHistory, WhatCannotBeWrittenIsSaidOnce) {
  const HistoryFolder folder;
  folder.write("file");
  CpuProfiler profiler;
  const Status refused = keep_profiles(profiler, {.folder = folder.path() / "file" / "in"});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("give a folder that can be written"), std::string::npos);
  std::atomic<int> warned = 0;
  ASSERT_TRUE(keep_profiles(
      profiler,
      {.folder = folder.path() / "gone", .window = 120ms, .warn = [&](const std::string&) { ++warned; }}));
  std::filesystem::remove(folder.path() / "gone");
  folder.write("gone");  // a file in the folder's place
  for (int tries = 0; tries < 3000 && warned == 0; ++tries) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(500ms);  // more windows end
  EXPECT_EQ(warned, 1);
}

}  // namespace
}  // namespace fathom::profile
