#include "machine/ceilings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "machine/machine_id.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

Measured value(double median) { return {median, median * 0.9, median * 1.1, median * 1.2, 15}; }

// Two cores with private caches and a shared last-level cache.
Topology two_cores() {
  Topology machine;
  machine.cores  = 2;
  machine.caches = {{1, "data", 32 << 10, 64, 1, 2},
                    {2, "unified", 512 << 10, 64, 1, 2},
                    {3, "unified", 32 << 20, 64, 2, 1}};
  return machine;
}

Ceilings example() {
  Ceilings c;
  c.machine_id       = "box";
  c.identity         = machine_identity(topology(), isolation(), kCeilingsVersion);
  c.measured_at      = "2026-01-02T03:04:05Z";
  c.seconds          = 12;
  c.threads          = 4;
  c.huge_pages       = true;
  const double one[] = {200e9, 100e9, 50e9, 20e9}, all[] = {800e9, 400e9, 120e9, 30e9};
  for (const Level level : kLevels)
    for (const Traffic traffic : {Traffic::read, Traffic::copy}) {
      const int i = static_cast<int>(level);
      c.bandwidths.push_back({level, traffic, 1, 1024, "AVX2", value(one[i])});
      c.bandwidths.push_back({level, traffic, 4, 4096, "AVX2, 4 ranges", value(all[i])});
    }
  c.load_latencies      = {{Level::l1, 24576, value(1.25)}, {Level::dram, 1 << 28, value(90)}};
  c.peaks               = {{"sse2", DType::fp32, 1, value(40e9)},
                           {"avx2+fma", DType::fp32, 1, value(100e9)},
                           {"avx2+fma", DType::fp32, 4, value(380e9)},
                           {"amx_int8", DType::int8, 1, value(2e12)}};
  c.wake_up_busy_ns     = value(600);
  c.wake_up_asleep_ns   = {};  // one thread only: not measured
  c.disk_reads          = {{DiskRead::direct, 1 << 20, "O_DIRECT is refused here", {}},
                           {DiskRead::buffered, 1 << 20, {}, value(1e9)}};
  c.noise_floor_compute = 0.01;
  c.noise_floor_memory  = 0.02;
  c.steal_share         = 0.001;
  c.cpu_pressure        = 0.25;
  return c;
}

TEST(CeilingsJson, SurvivesTheRoundTrip) {
  for (Ceilings c : {Ceilings{}, example()}) {
    const Result<Ceilings> back = ceilings_from_json(nlohmann::json::parse(to_json(c).dump()));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, c);
  }
}

TEST(CeilingsJson, RefusesWhatNoMeasuringGives) {
  const nlohmann::json good = to_json(example());
  const auto refused = [](const nlohmann::json& json) { return !ceilings_from_json(json).has_value(); };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(nlohmann::json::array()));
  nlohmann::json bad = good;
  bad["schema"]      = "fathom.ceilings/999";
  EXPECT_TRUE(refused(bad));
  bad                                         = good;
  bad["bandwidths"][0]["bytes_per_s"]["best"] = -1;
  EXPECT_TRUE(refused(bad));
  bad                           = good;
  bad["bandwidths"][0]["level"] = "L9";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.erase("peaks");
  EXPECT_TRUE(refused(bad));
}

TEST(Rates, BetweenOneAndAllThreads) {
  const Ceilings c = example();
  EXPECT_DOUBLE_EQ(best_rate(Level::l1, Traffic::read, 1, c), 240e9);
  EXPECT_DOUBLE_EQ(best_rate(Level::l1, Traffic::read, 0, c), 240e9);
  EXPECT_DOUBLE_EQ(best_rate(Level::l1, Traffic::read, 2, c), 480e9);
  EXPECT_DOUBLE_EQ(best_rate(Level::dram, Traffic::read, 2, c), 36e9);  // all threads reach no more
  EXPECT_DOUBLE_EQ(best_rate(Level::dram, Traffic::read, 99, c), 36e9);
  EXPECT_DOUBLE_EQ(median_rate(Level::dram, Traffic::copy, 4, c), 30e9);
  EXPECT_EQ(best_rate(Level::dram, Traffic::copy_nontemporal, 1, c), 0);  // never measured
}

TEST(Rates, ArithmeticTakesTheBestInstructionSet) {
  const Ceilings c = example();
  EXPECT_DOUBLE_EQ(peak_flops(DType::fp32, 1, c), 120e9);
  EXPECT_DOUBLE_EQ(peak_flops(DType::fp32, 3, c), 360e9);
  EXPECT_DOUBLE_EQ(peak_flops(DType::fp32, 4, c), 456e9);
  EXPECT_DOUBLE_EQ(median_flops(DType::fp32, 4, c), 380e9);
  EXPECT_EQ(peak_flops(DType::fp64, 1, c), 0);
  EXPECT_DOUBLE_EQ(median_load_latency_ns(Level::dram, c), 90);
  EXPECT_EQ(median_load_latency_ns(Level::l2, c), 0);
  EXPECT_DOUBLE_EQ(best_disk_rate(DiskRead::buffered, c), 1.2e9);
  EXPECT_EQ(best_disk_rate(DiskRead::direct, c), 0);
}

TEST(LevelHolding, TurnsAtEveryCapacity) {
  const Topology m = two_cores();
  EXPECT_EQ(level_holding(0, 1, m), Level::l1);
  EXPECT_EQ(level_holding(32 << 10, 1, m), Level::l1);
  EXPECT_EQ(level_holding((32 << 10) + 1, 1, m), Level::l2);
  EXPECT_EQ(level_holding((32 << 10) + 1, 2, m), Level::l1);
  EXPECT_EQ(level_holding(64 << 10, 99, m), Level::l1);  // there are only two
  EXPECT_EQ(level_holding((64 << 10) + 1, 99, m), Level::l2);
  EXPECT_EQ(level_holding(512 << 10, 1, m), Level::l2);
  EXPECT_EQ(level_holding((512 << 10) + 1, 1, m), Level::l3);
  EXPECT_EQ(level_holding(32 << 20, 2, m), Level::l3);
  EXPECT_EQ(level_holding((32 << 20) + 1, 2, m), Level::dram);
  Topology silent;  // reports no caches
  EXPECT_EQ(level_holding(1, 1, silent), Level::dram);
}

TEST(HighestRate, FallsSmoothlyFromLevelToLevel) {
  const Ceilings c = example();
  const Topology m = two_cores();
  EXPECT_DOUBLE_EQ(highest_rate(0, Traffic::read, 1, c, m), 240e9);
  EXPECT_DOUBLE_EQ(highest_rate(32 << 10, Traffic::read, 1, c, m), 240e9);
  // Half in L1, half in L2: twice the bytes in the time of both.
  EXPECT_NEAR(highest_rate(64 << 10, Traffic::read, 1, c, m), 2 / (1 / 240e9 + 1 / 120e9), 1);
  double last = 1e15;
  for (int64_t bytes = 1; bytes < int64_t{1} << 34; bytes = bytes * 5 / 4 + 1) {
    const double rate = highest_rate(bytes, Traffic::read, 1, c, m);
    EXPECT_LE(rate, last * (1 + 1e-12));
    EXPECT_GE(rate, best_rate(Level::dram, Traffic::read, 1, c));
    last = rate;
  }
  EXPECT_NEAR(last / best_rate(Level::dram, Traffic::read, 1, c), 1, 0.01);
}

TEST(Bests, AreKeptFromTheEarlierMeasuring) {
  Ceilings earlier = example(), fresh = example();
  earlier.bandwidths[0].bytes_per_s.best = 1e12;
  earlier.bandwidths[1].bytes_per_s.best = 1;  // the fresh one is better
  earlier.load_latencies[0].ns.best      = 0.5;
  earlier.wake_up_asleep_ns              = value(5000);
  const Ceilings kept                    = with_bests_of(fresh, earlier);
  EXPECT_EQ(kept.bandwidths[0].bytes_per_s.best, 1e12);
  EXPECT_EQ(kept.bandwidths[0].bytes_per_s.median, fresh.bandwidths[0].bytes_per_s.median);
  EXPECT_EQ(kept.bandwidths[1].bytes_per_s.best, fresh.bandwidths[1].bytes_per_s.best);
  EXPECT_EQ(kept.load_latencies[0].ns.best, 0.5);  // of times, the lowest
  EXPECT_EQ(with_bests_of(fresh, fresh), fresh);
}

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "ceilings-XXXXXX";
    folder_          = mkdtemp(name.data());
    path_            = folder_ / "deep" / "box.json";
    measured_        = 0;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Ceilings measure() {
    ++measured_;
    return example();
  }
  void write(std::string_view text) const {
    fs::create_directories(path_.parent_path());
    std::ofstream(path_) << text;
  }

  fs::path folder_, path_;
  inline static int measured_ = 0;
};

TEST_F(Cache, IsWrittenOnceAndReadAfter) {
  EXPECT_EQ(obtain_ceilings(Refresh::if_missing, path_, measure), example());
  EXPECT_EQ(obtain_ceilings(Refresh::if_missing, path_, measure), example());
  EXPECT_EQ(obtain_ceilings(Refresh::never, path_, measure), example());
  EXPECT_EQ(measured_, 1);
  obtain_ceilings(Refresh::always, path_, measure);
  EXPECT_EQ(measured_, 2);
}

TEST_F(Cache, NeverMeansNever) {
  EXPECT_THROW(obtain_ceilings(Refresh::never, path_, measure), SystemError);
  EXPECT_EQ(measured_, 0);
}

TEST_F(Cache, WritingLeavesOneWholeFile) {
  write_ceilings(example(), path_);
  write_ceilings(example(), path_);
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 1);
  const Result<Ceilings> read = read_ceilings(path_);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, example());
}

TEST_F(Cache, CorruptOnesAreMeasuredAnew) {
  const std::string whole = to_json(example()).dump();
  for (const std::string& text :
       {std::string(), std::string("{"), whole.substr(0, whole.size() / 2), std::string("[1]")}) {
    write(text);
    measured_ = 0;
    testing::internal::CaptureStderr();
    EXPECT_EQ(obtain_ceilings(Refresh::if_missing, path_, measure), example());
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("warning"), std::string::npos) << said;
    EXPECT_NE(said.find(path_.string()), std::string::npos) << said;
    EXPECT_EQ(measured_, 1);
    EXPECT_TRUE(read_ceilings(path_)) << "the cache is whole again";
  }
}

TEST_F(Cache, OfAnotherMachineIsNotUsed) {
  Ceilings other = example();
  other.identity = "another";
  other.bandwidths[0].bytes_per_s.best *= 100;
  write_ceilings(other, path_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(obtain_ceilings(Refresh::if_missing, path_, measure), example());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("another machine"), std::string::npos);
}

TEST_F(Cache, RefreshKeepsTheBest) {
  Ceilings earlier = example();
  earlier.bandwidths[0].bytes_per_s.best *= 2;
  write_ceilings(earlier, path_);
  const Ceilings refreshed = obtain_ceilings(Refresh::always, path_, measure);
  EXPECT_EQ(refreshed.bandwidths[0].bytes_per_s.best, earlier.bandwidths[0].bytes_per_s.best);
  EXPECT_EQ(read_ceilings(path_).value(), refreshed);
}

TEST_F(Cache, ThatCannotBeWrittenCostsAWarningOnly) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(obtain_ceilings(Refresh::if_missing, "/proc/no-such-folder/box.json", measure), example());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("not cached"), std::string::npos);
}

TEST(CachePath, FollowsXdg) {
  const char* before      = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before ? before : "";
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/some/where", 1), 0);
  EXPECT_TRUE(ceilings_path().starts_with("/some/where/fathom/ceilings/" + machine_id() + "-"));
  ASSERT_EQ(unsetenv("XDG_CACHE_HOME"), 0);
  ASSERT_EQ(setenv("HOME", "/home/of/tests", 1), 0);
  EXPECT_TRUE(ceilings_path().starts_with("/home/of/tests/.cache/fathom/ceilings/"));
  if (before) setenv("XDG_CACHE_HOME", saved.c_str(), 1);
}

}  // namespace
}  // namespace fathom::machine
