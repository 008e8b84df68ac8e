#include "core/atomic_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/expect.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "fathom_atomic_XXXXXX").string();
    path_            = mkdtemp(name.data());
  }
  ~TempFolder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string contents(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(WriteFileAtomically, ReplacesMakesFoldersAndLeavesNothingBehind) {
  const TempFolder folder;
  const fs::path file = folder / "deep/er/file.txt";
  write_file_atomically(file.string(), "first, and longer");
  write_file_atomically(file.string(), "second");
  EXPECT_EQ(contents(file), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator{}), 1);
  write_file_atomically(file.string(), "");
  EXPECT_EQ(fs::file_size(file), 0u);
}

TEST(WriteFileAtomically, FailureNamesTheFileAndKeepsTheOldOne) {
  const TempFolder folder;
  write_file_atomically((folder / "plain").string(), "x");
  try {
    write_file_atomically((folder / "plain/below").string(), "y");  // a file is no folder
    FAIL() << "it wrote";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("plain/below"), std::string::npos) << error.what();
  }
  EXPECT_EQ(contents(folder / "plain"), "x");
}

}  // namespace
}  // namespace fathom
