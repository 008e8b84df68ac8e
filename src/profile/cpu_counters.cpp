#include "profile/cpu_counters.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>

namespace fathom::profile {
namespace {

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string name = entry.path().filename();
    pid_t thread           = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc())
      threads.push_back(thread);
  }
  return threads;
}

int open_event(const CpuEvent& event, pid_t thread) {
  perf_event_attr wanted;
  std::memset(&wanted, 0, sizeof wanted);
  wanted.size           = sizeof wanted;
  wanted.type           = event.type;
  wanted.config         = event.config;
  wanted.inherit        = 1;
  wanted.exclude_kernel = 1;
  wanted.exclude_hv     = 1;
  wanted.read_format    = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(syscall(SYS_perf_event_open, &wanted, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

const std::vector<CpuEvent>& hardware_events() {
  static const std::vector<CpuEvent> events = {
      {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
      {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
      {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
      {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
      {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES}};
  return events;
}

CpuCounters::CpuCounters(const std::vector<CpuEvent>& events)
    : events_(events), refused_(events.size(), false) {
  for (const pid_t thread : threads_of_this_process())
    for (size_t event = 0; event < events_.size(); ++event) {
      if (refused_[event]) continue;
      if (const int file = open_event(events_[event], thread); file >= 0)
        opened_.push_back({event, file});
      else if (errno != ESRCH)  // that thread has ended meanwhile
        refused_[event] = true;
    }
}

CpuCounters::~CpuCounters() {
  for (const Opened& opened : opened_) close(opened.file);
}

std::map<std::string, double> CpuCounters::stop() {
  struct {
    uint64_t count, enabled_ns, running_ns;
  } seen;
  std::map<std::string, double> counts;
  for (const Opened& opened : opened_) {
    ioctl(opened.file, PERF_EVENT_IOC_DISABLE, 0);
    if (read(opened.file, &seen, sizeof seen) != static_cast<ssize_t>(sizeof seen) ||
        (seen.running_ns == 0 && seen.enabled_ns > 0)) {
      refused_[opened.event] = true;
      continue;
    }
    const double scale =
        seen.running_ns > 0 ? static_cast<double>(seen.enabled_ns) / static_cast<double>(seen.running_ns) : 1;
    counts[events_[opened.event].name] += scale * static_cast<double>(seen.count);
  }
  for (size_t event = 0; event < events_.size(); ++event)
    if (refused_[event]) counts.erase(events_[event].name);
  return counts;
}

}  // namespace fathom::profile
