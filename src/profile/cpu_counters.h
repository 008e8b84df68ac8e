// Counters of perf_event_open over all threads of this process, those that exist and those that they start.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fathom::profile {

struct CpuEvent {
  std::string name;     // ours: "cache_misses"
  uint32_t type   = 0;  // PERF_TYPE_HARDWARE
  uint64_t config = 0;  // PERF_COUNT_HW_CACHE_MISSES
};

// instructions, cycles, cache_misses (of the last level), branches, branch_misses.
const std::vector<CpuEvent>& hardware_events();

// Counts from its construction until stop(), in user mode. More events than the processor counts at once take
// turns, and are scaled to the whole time.
class CpuCounters {
 public:
  explicit CpuCounters(const std::vector<CpuEvent>& events);
  ~CpuCounters();
  CpuCounters(const CpuCounters&)            = delete;
  CpuCounters& operator=(const CpuCounters&) = delete;

  // Events that some thread refused are left out; none may be left.
  std::map<std::string, double> stop();

 private:
  struct Opened {
    size_t event;
    int file;
  };
  std::vector<CpuEvent> events_;
  std::vector<Opened> opened_;
  std::vector<bool> refused_;
};

}  // namespace fathom::profile
