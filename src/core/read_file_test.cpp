#include "core/read_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

namespace fs = std::filesystem;

class ReadFile : public ::testing::Test {
 protected:
  const fs::path folder_ = fs::temp_directory_path() / ("read_file_test_" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
};

TEST_F(ReadFile, GivesEveryByte) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("\0\r\n\xff", 4), std::string(100003, 'x')}) {
    std::ofstream(folder_ / "file", std::ios::binary) << text;
    const auto read = read_file(folder_ / "file");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, text);
  }
}

TEST_F(ReadFile, NamesTheFileAndTheCause) {
  const auto gone = read_file(folder_ / "gone");
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().message, (folder_ / "gone").string() + " cannot be read: No such file or directory");
  const auto folder = read_file(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, folder_.string() + " cannot be read: Is a directory");
}

}  // namespace
}  // namespace fathom
