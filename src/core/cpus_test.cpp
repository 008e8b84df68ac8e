#include "core/cpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/expect.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// A root folder with only the files a test writes into it.
class CpuQuota : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fathom_cpus_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::optional<double> quota() const { return cpu_quota(root_.string()); }

  fs::path root_;
};

TEST_F(CpuQuota, IsAbsentWithoutControlGroups) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(CpuQuota, ReadsVersion2) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CpuQuota, TakesTheTightestOfAllEnclosingGroups) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, ReadsVersion1WhereverItIsMounted) {
  write("proc/self/cgroup", "9:name=systemd:/x\n3:cpuset:/x\n2:cpu,cpuacct:/docker/1\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(quota(), 0.5);
  // In a container the path is the host's, but the group is mounted at the top.
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST(Cpus, HostThreadsAreWithinTheAllowed) {
  EXPECT_GE(host_threads(), 1);
  EXPECT_LE(host_threads(), static_cast<int>(allowed_cpus().size()));
}

TEST(Cpus, PinningLeavesOneCpu) {
  const std::vector<int> before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
  std::thread([&] {
    pin_this_thread(before.back());
    EXPECT_EQ(allowed_cpus(), std::vector<int>{before.back()});
    EXPECT_EQ(host_threads(), 1);
  }).join();
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(Cpus, RefusesACpuThatIsNotThere) {
  EXPECT_THROW(pin_this_thread(-1), ContractError);
  EXPECT_THROW(pin_this_thread(1 << 20), SystemError);
}

}  // namespace
}  // namespace fathom
