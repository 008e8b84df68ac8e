#include "machine/rapl.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

// A powercap folder as Linux lays it out, with only what a test writes into it.
class Rapl : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fathom_rapl_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& zone, const std::string& name, int64_t energy_uj,
           int64_t range_uj = 262143328850) {
    fs::create_directories(root_ / zone);
    std::ofstream(root_ / zone / "name") << name << "\n";
    std::ofstream(root_ / zone / "energy_uj") << energy_uj << "\n";
    std::ofstream(root_ / zone / "max_energy_range_uj") << range_uj << "\n";
  }
  static std::optional<double> joules(RaplCounters& counters, const std::string& zone) {
    for (const CpuEnergy& energy : counters.read())
      if (energy.zone == zone) return energy.joules;
    return std::nullopt;
  }

  fs::path root_;
};

TEST_F(Rapl, IsEmptyWithoutThePowercapFolder) {
  EXPECT_TRUE(RaplCounters(root_ / "gone").empty());
  EXPECT_TRUE(RaplCounters(root_).empty());
}

TEST_F(Rapl, CountsFromItsStart) {
  put("intel-rapl:0", "package-0", 7'000'000);
  RaplCounters counters(root_);
  EXPECT_EQ(joules(counters, "package-0"), 0);
  put("intel-rapl:0", "package-0", 9'500'000);
  EXPECT_EQ(joules(counters, "package-0"), 2.5);
  EXPECT_EQ(joules(counters, "package-0"), 2.5);
}

TEST_F(Rapl, GoesOnWhereTheCounterStartsAgain) {
  put("intel-rapl:0", "package-0", 9'000'000, 10'000'000);
  RaplCounters counters(root_);
  put("intel-rapl:0", "package-0", 500'000, 10'000'000);
  EXPECT_EQ(joules(counters, "package-0"), 1.5);
  put("intel-rapl:0", "package-0", 400'000, 10'000'000);
  EXPECT_EQ(joules(counters, "package-0"), 11.4);
}

TEST_F(Rapl, CountsNothingTwice) {
  put("intel-rapl:0", "package-0", 0);
  put("intel-rapl:0:0", "core", 0);
  put("intel-rapl:0:1", "dram", 0);
  put("intel-rapl:1", "package-1", 0);
  put("intel-rapl:1:0", "dram", 0);
  put("intel-rapl:2", "psys", 0);
  put("intel-rapl-mmio:0", "package-0", 0);
  std::vector<std::string> zones, memory;
  for (const CpuEnergy& energy : RaplCounters(root_).read())
    (energy.memory ? memory : zones).push_back(energy.zone);
  EXPECT_EQ(zones, (std::vector<std::string>{"package-0", "package-1"}));
  EXPECT_EQ(memory, (std::vector<std::string>{"package-0/dram", "package-1/dram"}));
}

TEST_F(Rapl, LeavesOutWhatCannotBeRead) {
  put("intel-rapl:0", "package-0", 3);
  fs::remove(root_ / "intel-rapl:0" / "energy_uj");  // as for anybody but root
  put("intel-rapl:1", "package-1", 3);
  RaplCounters counters(root_);
  EXPECT_EQ(joules(counters, "package-0"), std::nullopt);
  put("intel-rapl:1", "package-1", 1'000'003);
  EXPECT_EQ(joules(counters, "package-1"), 1);
  fs::remove(root_ / "intel-rapl:1" / "energy_uj");
  EXPECT_EQ(joules(counters, "package-1"), 1);  // a counter does not fall
}

}  // namespace
}  // namespace fathom::machine
