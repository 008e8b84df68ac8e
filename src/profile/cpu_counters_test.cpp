// By software events, which virtual machines have too; hardware events go the same way.
#include "profile/cpu_counters.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "machine/perf_counters.h"
#include "profile/cpu_profile.h"

namespace fathom::profile {
namespace {

constexpr size_t kPages = 200, kPageBytes = 4096;

void touch_new_pages() {
  void* memory =
      mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  (void)madvise(memory, kPages * kPageBytes, MADV_NOHUGEPAGE);
  for (size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(memory)[page * kPageBytes] = 1;
  munmap(memory, kPages * kPageBytes);
}

const CpuEvent kFaults{"page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS};
const CpuEvent kNoSuchEvent{"imagined", PERF_TYPE_SOFTWARE, 9999};

TEST(CpuCounters, CountWhatAllThreadsDo) {
  if (const auto why = machine::missing_software_counters()) GTEST_SKIP() << *why;
  std::mutex mutex;
  std::condition_variable changed;
  bool go = false;
  std::thread early([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return go; });
    touch_new_pages();
  });
  CpuCounters counters({kFaults, kNoSuchEvent});
  touch_new_pages();
  {
    const std::lock_guard lock(mutex);
    go = true;
  }
  changed.notify_one();
  early.join();
  std::thread(touch_new_pages).join();
  const auto counts = counters.stop();
  EXPECT_FALSE(counts.contains("imagined")) << "an event that the kernel does not know";
  ASSERT_TRUE(counts.contains("page_faults"));
  // Of this thread, of one that was there, and of one that was started; stacks and locks add some.
  EXPECT_GE(counts.at("page_faults"), 3 * kPages);
  EXPECT_LT(counts.at("page_faults"), 3 * kPages + 200);
}

TEST(CpuCounters, AWatchHasHardwareCountersOrAReason) {
  volatile int64_t sum      = 0;
  const CpuActivity watched = watch_cpu(
      [&] {
        for (int i = 0; i < 100'000; ++i) sum = sum + i;
      },
      0.02);
  if (machine::missing_hardware_counters()) {
    EXPECT_TRUE(watched.counters.empty());
    ASSERT_FALSE(watched.notes.empty());
    EXPECT_TRUE(watched.notes[0].starts_with("no hardware counters: ")) << watched.notes[0];
    return;
  }
  EXPECT_GT(watched.counters.at("instructions"), 100'000.0 * static_cast<double>(watched.calls.size()));
}

TEST(CpuCounters, AreMetricsOfACall) {
  CpuActivity activity{.calls = {{0, 100}, {100, 200}}, .counters = {{"instructions", 600}, {"cycles", 200}}};
  const auto metrics = metrics_of(cpu_profile(activity));
  EXPECT_EQ(metrics.at("counted_instructions").value, 300);
  EXPECT_EQ(metrics.at("counted_cycles").value, 100);
  EXPECT_FALSE(metrics.contains("counted_cache_misses"));
}

}  // namespace
}  // namespace fathom::profile
