#include "cli/variant_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/source_tree.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

class SourceTest : public testing::Test {
 protected:
  SourceTest() {
    std::string name   = (fs::temp_directory_path() / "fathom_source_XXXXXX").string();
    root_              = fs::canonical(mkdtemp(name.data()));
    experiment_.folder = "experiments/ch07_memory/x";
    fs::create_directories(root_ / experiment_.folder);
    for (const char* file : {"experiment.cpp", "naive.cpp", "tiled.cpp", "tiled_wide.cpp", "swizzled.cu"})
      std::ofstream(root_ / experiment_.folder / file) << "";
    std::ofstream(root_ / "experiments/chapters.toml") << "";
  }
  ~SourceTest() override { fs::remove_all(root_); }
  std::string found(const char* variant) const {
    const auto file = variant_source(root_.string(), experiment_, variant);
    return file ? fs::path(*file).filename().string() : file.error().message;
  }

  fs::path root_;
  lab::ExperimentInfo experiment_;
};

TEST_F(SourceTest, AVariantIsItsFileOrTheLongestBeginningOfIts) {
  EXPECT_EQ(found("naive"), "naive.cpp");
  EXPECT_EQ(found("swizzled"), "swizzled.cu");
  EXPECT_EQ(found("tiled_1t"), "tiled.cpp");
  EXPECT_EQ(found("tiled_wide_all"), "tiled_wide.cpp");
  EXPECT_NE(found("openblas").find("experiment.cpp, naive.cpp"), std::string::npos) << found("openblas");
}

TEST_F(SourceTest, AnEngineVariantIsItsOp) {
  experiment_.variants.push_back(
      {.id = "naive", .kind = lab::Kind::engine, .op = "kernels/moe/experts_gemv.cu"});
  EXPECT_EQ(found("naive"), "experts_gemv.cu");
}

TEST_F(SourceTest, TheTreeIsFoundFromBelow) {
  const auto root = find_source_tree((root_ / experiment_.folder).string());
  ASSERT_TRUE(root);
  EXPECT_EQ(fs::canonical(*root), root_);
  EXPECT_FALSE(find_source_tree("/"));
}

}  // namespace
}  // namespace fathom::cli
