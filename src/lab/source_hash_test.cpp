#include "lab/source_hash.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/expect.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;

class SourceHashTest : public testing::Test {
 protected:
  SourceHashTest() {
    std::string name = (fs::temp_directory_path() / "fathom_hash_XXXXXX").string();
    root_            = mkdtemp(name.data());
    write("experiments/ch07_memory/x/experiment.cpp", "#include \"x.h\"\nint a;\n");
    write("experiments/ch07_memory/x/x.h", "int b;\n");
    write("experiments/ch07_memory/y/experiment.cpp", "int c;\n");
  }
  ~SourceHashTest() override { fs::remove_all(root_); }

  void write(const char* path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string hash() const { return hash_sources(root_, "experiments/ch07_memory/x"); }

  fs::path root_;
};

TEST_F(SourceHashTest, ChangesWithSourcesOnly) {
  const std::string before = hash();
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(before.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(hash(), before);
  write("experiments/ch07_memory/x/notes.md", "what was learnt");
  write("experiments/ch07_memory/x/x_test.cpp", "int t;\n");
  write("experiments/ch07_memory/y/experiment.cpp", "int other;\n");
  EXPECT_EQ(hash(), before);
  write("experiments/ch07_memory/x/tiled.cpp", "");
  const std::string longer = hash();
  EXPECT_NE(longer, before);
  fs::rename(root_ / "experiments/ch07_memory/x/tiled.cpp", root_ / "experiments/ch07_memory/x/padded.cpp");
  EXPECT_NE(hash(), longer);
  fs::remove(root_ / "experiments/ch07_memory/x/padded.cpp");
  EXPECT_EQ(hash(), before);
  write("experiments/ch07_memory/x/triton_x.py", "half = n // 2\n");
  const std::string with_script = hash();
  EXPECT_NE(with_script, before);
  write("experiments/ch07_memory/x/triton_x.py", "half = n // 3\n");
  EXPECT_NE(hash(), with_script) << "// is no comment in Python";
}

TEST(PythonSource, IsCompiledIn) {
  EXPECT_NE(python_source("src/lab/python_runner.py").find("def bind(p):"), std::string_view::npos);
  EXPECT_TRUE(python_source("src/lab/no_such.py").empty());
}

TEST_F(SourceHashTest, DoesNotChangeWithCommentsAndFormat) {
  const std::string before = hash();
  write("experiments/ch07_memory/x/x.h", "// what b is\nint\n  b;  // small\n");
  EXPECT_EQ(hash(), before);
  write("experiments/ch07_memory/x/x.h", "int b = 1;\n");
  EXPECT_NE(hash(), before);
}

TEST_F(SourceHashTest, FollowsKernelsAndNeighbouringHeaders) {
  write("src/kernels/norm/rmsnorm.h", "void rmsnorm();\n");
  write("src/kernels/norm/rmsnorm_cpu.cpp", "int one;\n");
  write("src/kernels/rmsnormal.cpp", "int another_kernel;\n");
  write("src/core/view.h", "int core;\n");
  write("experiments/ch07_memory/shared.h", "int one;\n");
  write("experiments/ch07_memory/x/x.h",
        "#include \"kernels/norm/rmsnorm.h\"\n  #  include \"../shared.h\"\n#include \"core/view.h\"\n");
  const std::string before = hash();
  write("src/kernels/rmsnormal.cpp", "int changed;\n");
  write("src/kernels/norm/rmsnorm_test.cpp", "int changed;\n");
  write("src/core/view.h", "int changed;\n");
  EXPECT_EQ(hash(), before);
  write("src/kernels/norm/rmsnorm_cpu.cpp", "int two;\n");
  const std::string kernel = hash();
  EXPECT_NE(kernel, before);
  write("experiments/ch07_memory/shared.h", "int two;\n");
  const std::string shared = hash();
  EXPECT_NE(shared, kernel);
  write("experiments/ch07_memory/shared_alone.cpp", "int one;\n");
  const std::string implemented = hash();
  EXPECT_NE(implemented, shared);
  write("experiments/ch07_memory/shared_alone_test.cpp", "int a_test;\n");
  write("experiments/ch07_memory/sharedness.cpp", "int another;\n");
  EXPECT_EQ(hash(), implemented);
  // The compiler's code is measured as a kernel is.
  write("src/compile/fuse.h", "int one;\n");
  write("experiments/ch07_memory/shared.h", "#include \"compile/fuse.h\"\n");
  const std::string compiled = hash();
  write("src/compile/fuse.cpp", "int two;\n");
  EXPECT_NE(hash(), compiled);
}

TEST_F(SourceHashTest, FollowsTheWholeEngineWhereOneFileIncludesIt) {
  write("experiments/session.h", "#include \"engine/config.h\"\n#include \"load/statistics.h\"\n");
  write("experiments/session.cpp", "int session;\n");
  write("src/engine/config.h", "int config;\n");
  write("src/engine/scheduler.cpp", "#include \"model/rope.h\"\n#include \"measure/clock.h\"\n");
  write("src/engine/scheduler_test.cpp", "int test;\n");
  write("src/model/rope.h", "#include \"core/pool.h\"\n");
  write("src/model/rope.cpp", "int rope;\n");
  write("src/model/other.cpp", "int other;\n");
  write("src/core/pool.h", "int pool;\n");
  write("src/measure/clock.h", "int clock;\n");
  write("src/load/statistics.h", "int statistics;\n");
  write("experiments/ch07_memory/x/x.h", "#include \"experiments/session.h\"\n");
  std::string present = hash();
  for (const char* counts : {"src/engine/config.h", "src/engine/scheduler.cpp", "src/model/rope.cpp",
                             "src/core/pool.h", "src/load/statistics.h", "experiments/session.cpp"}) {
    std::ofstream(root_ / counts, std::ios::app) << "int changed;\n";
    EXPECT_NE(hash(), present) << counts;
    present = hash();
  }
  for (const char* does_not :
       {"src/engine/scheduler_test.cpp", "src/model/other.cpp", "src/measure/clock.h"}) {
    std::ofstream(root_ / does_not, std::ios::app) << "int changed;\n";
    EXPECT_EQ(hash(), present) << does_not;
  }
}

TEST_F(SourceHashTest, DoesNotDependOnWhereTheTreeLies) {
  const std::string before = hash();
  const fs::path moved     = root_.string() + "_moved";
  fs::copy(root_, moved, fs::copy_options::recursive);
  EXPECT_EQ(hash_sources(moved, "experiments/ch07_memory/x"), before);
  fs::remove_all(moved);
}

TEST_F(SourceHashTest, AMissingFolderIsAnError) {
  EXPECT_THROW(hash_sources(root_, "experiments/ch99_nothing/x"), std::exception);
}

TEST(SourceTables, AreCompiledIn) {
  EXPECT_EQ(source_hash("experiments/ch99_nothing/x"), "");
  EXPECT_FALSE(build_compiler().empty());
  EXPECT_NE(chapters_toml().find("[[chapter]]"), std::string_view::npos);
  EXPECT_NE(labels_toml().find("[[label]]"), std::string_view::npos);
}

}  // namespace
}  // namespace fathom::lab
