#include "machine/isolation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "machine/topology.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

class Cgroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "cgroups-XXXXXX";
    root_            = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& file, std::string_view text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  fs::path root_;
};

TEST_F(Cgroups, VersionTwoTakesTheTightestAncestor) {
  write("a/memory.max", "1000000\n");
  write("a/b/memory.max", "max\n");
  write("a/b/c/memory.max", "2000000\n");
  EXPECT_EQ(cgroup_memory_limit("0::/a/b/c\n", root_), 1000000);
  EXPECT_EQ(cgroup_memory_limit("0::/a/b\n", root_), 1000000);
  EXPECT_EQ(cgroup_memory_limit("0::/\n", root_), std::nullopt);
  EXPECT_EQ(cgroup_memory_limit("0::/gone\n", root_), std::nullopt);
}

TEST_F(Cgroups, VersionOneReadsItsMemoryHierarchy) {
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/job/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(cgroup_memory_limit("3:cpu,cpuacct:/job\n2:memory:/job\n", root_), 536870912);
  EXPECT_EQ(cgroup_memory_limit("2:memory:/\n", root_), std::nullopt);
  EXPECT_EQ(cgroup_memory_limit("3:cpu:/job\n", root_), std::nullopt);
}

// In a container the path is the host's, but only the root of the mount exists.
TEST_F(Cgroups, PathOfAnotherNamespaceFallsBackToTheRoot) {
  write("memory.max", "4096000\n");
  EXPECT_EQ(cgroup_memory_limit("0::/kubepods/pod1/box\n", root_), 4096000);
}

TEST_F(Cgroups, HybridLooksUnderUnified) {
  write("unified/u/memory.max", "7777\n");
  write("memory/v/memory.limit_in_bytes", "9999\n");
  EXPECT_EQ(cgroup_memory_limit("5:memory:/v\n0::/u\n", root_), 7777);
}

TEST(CgroupVersion, IsReadFromTheLines) {
  EXPECT_EQ(cgroup_version("0::/a\n"), "v2");
  EXPECT_EQ(cgroup_version("2:memory:/\n1:cpu:/\n"), "v1");
  EXPECT_EQ(cgroup_version("2:memory:/\n0::/\n"), "hybrid");
  EXPECT_EQ(cgroup_version(""), "none");
  EXPECT_EQ(cgroup_version("garbage\n"), "none");
}

TEST(MemoryLimit, HasThreeWaysToSayNone) {
  EXPECT_EQ(parse_memory_limit("max\n"), std::nullopt);
  EXPECT_EQ(parse_memory_limit("9223372036854771712\n"), std::nullopt);
  EXPECT_EQ(parse_memory_limit(""), std::nullopt);
  EXPECT_EQ(parse_memory_limit("0\n"), 0);
  EXPECT_EQ(parse_memory_limit("12345\n"), 12345);
}

TEST(CpuTimes, AreSummedFromTheFirstLine) {
  const auto times = parse_cpu_times("cpu  10 1 5 70 4 0 3 7 2 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->total, 100);  // user time already contains guest time, the ninth field
  EXPECT_EQ(times->idle, 74);
  EXPECT_EQ(times->steal, 7);
  EXPECT_FALSE(parse_cpu_times(""));
  EXPECT_FALSE(parse_cpu_times("cpu0 1 2 3 4 5 6 7 8\n"));
  EXPECT_FALSE(parse_cpu_times("cpu 1 2 3\n"));
}

TEST(Steal, IsAShareOfTheTimeBetween) {
  EXPECT_DOUBLE_EQ(steal_share({100, 0, 10}, {300, 0, 20}), 0.05);
  EXPECT_DOUBLE_EQ(steal_share({100, 0, 10}, {100, 0, 10}), 0);
}

TEST(Pressure, IsTheFirstAverage) {
  EXPECT_EQ(parse_pressure("some avg10=12.50 avg60=0.05 avg300=0.12 total=5\nfull avg10=1.00\n"), 0.125);
  EXPECT_EQ(parse_pressure(""), std::nullopt);
  EXPECT_EQ(parse_pressure("full avg10=1.00"), std::nullopt);
}

TEST(Isolation, OfThisMachineHangsTogether) {
  EXPECT_GE(usable_threads(), 1);
  EXPECT_LE(usable_threads(), static_cast<int>(topology().allowed_cpus.size()));
  EXPECT_GT(memory_available_bytes(), 0);
  EXPECT_LE(memory_available_bytes(), topology().memory_bytes);
  EXPECT_TRUE(isolation().hypervisor.empty() || isolation().virtual_machine);
}

}  // namespace
}  // namespace fathom::machine
