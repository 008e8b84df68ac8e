#include "measure/noise.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace fathom::measure {
namespace {

// A fake procfs, deleted at the end.
class NoiseFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fathom_noise_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Noise read() const { return read_noise(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(NoiseFiles, AbsentWhereTheMachineDoesNotTell) {
  const Noise noise = read();
  EXPECT_FALSE(noise.steal_s);
  EXPECT_FALSE(noise.run_delay_s);
  EXPECT_FALSE(noise.cpu_pressure_s);
  EXPECT_TRUE(noise.voluntary_switches);  // from getrusage, not from a file
}

TEST_F(NoiseFiles, ReadsTheRightFieldInTheRightUnit) {
  write("stat", "cpu  11 12 13 14 15 16 17 1800 19 20\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  write("thread-self/schedstat", "5000000000 2500000000 77\n");
  write("pressure/cpu",
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=4500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
        "total=9\n");
  const Noise noise = read();
  EXPECT_DOUBLE_EQ(noise.steal_s.value(), 1800.0 / static_cast<double>(sysconf(_SC_CLK_TCK)));
  EXPECT_DOUBLE_EQ(noise.run_delay_s.value(), 2.5);
  EXPECT_DOUBLE_EQ(noise.cpu_pressure_s.value(), 4.5);
}

TEST_F(NoiseFiles, AbsentWhenAFileIsNotWhatItShouldBe) {
  write("stat", "cpu  11 12 13 14 15 16 17\n");  // a kernel from before steal
  write("thread-self/schedstat", "\n");
  write("pressure/cpu", "full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
  const Noise noise = read();
  EXPECT_FALSE(noise.steal_s);
  EXPECT_FALSE(noise.run_delay_s);
  EXPECT_FALSE(noise.cpu_pressure_s);
}

TEST(Noise, GrowthIsTheDifferenceWhereBothAreKnown) {
  const Noise before{.steal_s = 1.5, .run_delay_s = 1, .voluntary_switches = 10, .minor_faults = 5};
  const Noise after{.steal_s = 2, .cpu_pressure_s = 9, .voluntary_switches = 13, .minor_faults = 5};
  const Noise grown = growth(before, after);
  EXPECT_DOUBLE_EQ(grown.steal_s.value(), 0.5);
  EXPECT_EQ(grown.voluntary_switches, 3);
  EXPECT_EQ(grown.minor_faults, 0);
  EXPECT_FALSE(grown.cpu_pressure_s);
  EXPECT_FALSE(grown.run_delay_s);
  EXPECT_FALSE(grown.major_faults);
}

// Catches counters of the wrong thread and exchanged fields: sleeping is voluntary, a fresh page is a minor
// fault.
TEST(Noise, SeesWhatThisThreadDoes) {
  const Noise before = read_noise();
  std::thread([] {
    for (int i = 0; i < 200; ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }).join();
  const Noise other = growth(before, read_noise());
  EXPECT_LT(other.voluntary_switches.value(), 100) << "another thread's sleeps";

  const Noise start = read_noise();
  // On a busy machine a few of them are over before the thread sleeps.
  for (int i = 0; i < 40; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
  constexpr size_t kPage = 4096, kPages = 64;
  auto* pages = static_cast<char*>(
      mmap(nullptr, kPage * kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  madvise(pages, kPage * kPages, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < kPages; ++i) static_cast<volatile char*>(pages)[i * kPage] = 1;
  munmap(pages, kPage * kPages);
  const Noise own = growth(start, read_noise());
  EXPECT_GE(own.voluntary_switches.value(), 20);
  EXPECT_GE(own.minor_faults.value(), static_cast<int64_t>(kPages * kPage / sysconf(_SC_PAGESIZE)));
}

// The totals that a test cannot cause lie between two direct readings of the kernel's counters.
TEST(Noise, TotalsAreTheKernelsOfThisThread) {
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return int64_t{usage.ru_nivcsw};
  };
  const auto waited_s = []() -> std::optional<double> {
    double running_ns = 0, waiting_ns = 0;
    if (!(std::ifstream("/proc/thread-self/schedstat") >> running_ns >> waiting_ns)) return std::nullopt;
    return waiting_ns * 1e-9;
  };
  const int64_t first_switches = switches();
  const auto first_waited      = waited_s();
  const Noise noise            = read_noise();
  EXPECT_GE(noise.involuntary_switches.value(), first_switches);
  EXPECT_LE(noise.involuntary_switches.value(), switches());
  EXPECT_EQ(noise.run_delay_s.has_value(), first_waited.has_value());
  EXPECT_GE(noise.run_delay_s, first_waited);
  EXPECT_LE(noise.run_delay_s, waited_s());
}

}  // namespace
}  // namespace fathom::measure
