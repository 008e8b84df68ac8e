#include "machine/ceilings_measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "core/expect.h"
#include "machine/features.h"
#include "machine/isolation.h"

namespace fathom::machine {
namespace {

Effort small_effort(const std::string& folder) {
  return {.trials = 3, .trial_s = 1e-4, .dram_bytes = 8 << 20, .disk_bytes = 12 << 20, .folder = folder};
}

void expect_plausible(const Measured& m) {
  EXPECT_GT(m.lo, 0);
  EXPECT_LE(m.lo, m.median);
  EXPECT_LE(m.median, m.hi);
  EXPECT_EQ(m.trials, 3);
}

// Checks that every entry exists and is plausible, not how fast the machine is.
TEST(MeasureCeilings, FillsEveryEntry) {
  std::string folder = std::filesystem::temp_directory_path() / "ceilings-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  int lines        = 0;
  const Ceilings c = measure_ceilings(small_effort(folder), [&](std::string_view) { ++lines; });
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the test file of the disk is gone";
  std::filesystem::remove_all(folder);

  EXPECT_GE(lines, 3);
  EXPECT_EQ(c.threads, usable_threads());
  const std::set<int> thread_counts{1, c.threads};
  size_t levels = 1;
  for (int level = 1; level <= 3; ++level) levels += data_cache(topology(), level) != nullptr;

  EXPECT_EQ(c.bandwidths.size(), levels * kTraffics * thread_counts.size());
  std::set<std::tuple<Level, Traffic, int>> seen;
  for (const Bandwidth& entry : c.bandwidths) {
    EXPECT_TRUE(thread_counts.contains(entry.threads));
    EXPECT_TRUE(seen.insert({entry.level, entry.traffic, entry.threads}).second);
    EXPECT_FALSE(entry.kernel.empty());
    EXPECT_GT(entry.bytes, 0);
    expect_plausible(entry.bytes_per_s);
    EXPECT_GE(entry.bytes_per_s.best, entry.bytes_per_s.hi);
  }
  EXPECT_EQ(c.load_latencies.size(), levels);
  for (const LoadLatency& entry : c.load_latencies) {
    expect_plausible(entry.ns);
    EXPECT_LE(entry.ns.best, entry.ns.lo);
  }
  for (const int threads : thread_counts)
    for (const DType dtype : {DType::fp32, DType::fp64}) EXPECT_GT(peak_flops(dtype, threads, c), 0);
  for (const ArithmeticPeak& entry : c.peaks) expect_plausible(entry.flops_per_s);
  if (c.threads > 1) {
    expect_plausible(c.wake_up_busy_ns);
    expect_plausible(c.wake_up_asleep_ns);
  }
  ASSERT_EQ(c.disk_reads.size(), std::size(kDiskReads));
  for (const DiskRate& entry : c.disk_reads) {
    if (entry.why_not)
      EXPECT_FALSE(entry.why_not->empty());
    else
      expect_plausible(entry.bytes_per_s);
  }
  EXPECT_GT(c.noise_floor_compute, 0);
  EXPECT_GT(c.noise_floor_memory, 0);
  EXPECT_FALSE(c.measured_at.empty());
}

TEST(MeasureOne, GivesTheEntryAskedFor) {
  const Effort effort       = small_effort("");
  const Bandwidth bandwidth = measure_bandwidth(Level::dram, Traffic::copy, 1, effort);
  EXPECT_EQ(bandwidth.level, Level::dram);
  EXPECT_EQ(bandwidth.traffic, Traffic::copy);
  EXPECT_EQ(bandwidth.bytes, 8 << 20);
  expect_plausible(bandwidth.bytes_per_s);
  const ArithmeticPeak peak = measure_peak(DType::fp64, 1, effort);
  EXPECT_EQ(peak.dtype, DType::fp64);
  expect_plausible(peak.flops_per_s);
  EXPECT_THROW(measure_peak(DType::e8m0, 1, effort), ContractError);
}

TEST(MeasureDisk, SaysWhyNot) {
  const std::vector<DiskRate> rates =
      measure_disk({.disk_bytes = 12 << 20, .folder = "/proc/no-such-folder"});
  ASSERT_EQ(rates.size(), std::size(kDiskReads));
  for (const DiskRate& rate : rates) EXPECT_TRUE(rate.why_not);
}

TEST(WorkingSet, LiesWithinItsLevelAndBeyondTheOneBefore) {
  Topology machine;
  machine.caches = {
      {1, "data", 48 << 10, 64, 2, 4}, {2, "unified", 2 << 20, 64, 2, 4}, {3, "unified", 16 << 20, 64, 8, 1}};
  for (const int threads : {1, 2, 4, 8}) {
    const auto set  = [&](Level level) { return working_set_bytes(level, threads, machine, 0); };
    const int cores = std::min(threads, 4);
    EXPECT_LE(set(Level::l1), int64_t{48 << 10} * cores);
    EXPECT_GT(set(Level::l2), int64_t{48 << 10} * cores);
    EXPECT_LE(set(Level::l2), int64_t{2 << 20} * cores);
    EXPECT_GE(set(Level::l3), int64_t{2 << 20} * cores);
    EXPECT_GE(set(Level::dram), int64_t{16 << 20});
  }
  EXPECT_EQ(working_set_bytes(Level::l3, 1, {}, 0), 0);
  EXPECT_EQ(working_set_bytes(Level::dram, 1, machine, 12345), 12345);
}

TEST(Summarise, FallsBackToTheRangeOfFewTrials) {
  const Measured few = summarise({3, 1, 2}, Better::higher);
  EXPECT_EQ(few.median, 2);
  EXPECT_EQ(few.lo, 1);
  EXPECT_EQ(few.hi, 3);
  EXPECT_EQ(few.best, 3);
  EXPECT_EQ(few.trials, 3);
  EXPECT_EQ(summarise({3, 1, 2}, Better::lower).best, 1);
}

}  // namespace
}  // namespace fathom::machine
