#include "cuda/range_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

namespace fathom {
namespace {

std::atomic<int64_t> open_log{0};  // its number; 0: none is open
std::mutex mutex;
int64_t logs = 0;
std::vector<LoggedRange> ranges;

struct Open {
  int64_t log;
  LoggedRange range;
};
thread_local std::vector<Open> open_ranges;

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void open_range_log() {
  const std::lock_guard lock(mutex);
  ranges.clear();
  open_log = ++logs;
}

std::vector<LoggedRange> close_range_log() {
  const std::lock_guard lock(mutex);
  open_log = 0;
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const LoggedRange& a, const LoggedRange& b) { return a.start_ns < b.start_ns; });
  return std::exchange(ranges, {});
}

bool begin_range(const char* name) {
  const int64_t log = open_log.load(std::memory_order_relaxed);
  if (log == 0) return false;
  open_ranges.push_back({log, {name, steady_ns(), 0, static_cast<uint32_t>(syscall(SYS_gettid))}});
  return true;
}

void end_range() {
  Open ended = std::move(open_ranges.back());
  open_ranges.pop_back();
  ended.range.end_ns = steady_ns();
  const std::lock_guard lock(mutex);
  if (open_log == ended.log) ranges.push_back(std::move(ended.range));
}

}  // namespace fathom
