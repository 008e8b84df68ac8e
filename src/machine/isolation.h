// How alone we are on this machine: hypervisor, control groups, stolen time, pressure, free memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fathom::machine {

struct CgroupLimits {
  std::string version                 = "none";  // none | v1 | v2 | hybrid
  std::optional<double> cpus          = {};      // quota over period; absent: no limit
  std::optional<int64_t> memory_bytes = {};      // absent: no limit
};

struct Isolation {
  bool virtual_machine = false;
  std::string hypervisor;  // "KVM"; empty where it does not say or there is none
  CgroupLimits cgroup;
};

// Read once, at the first call.
const Isolation& isolation();

// Threads that can run at once for us, whatever the calling thread is pinned to by now: the affinity the
// program was started with, capped by the cgroup's quota rounded up. This is what "all threads" means in
// every ceiling.
int usable_threads();

int64_t memory_available_bytes();  // now, within the cgroup's limit

// Time of all processors since boot, in clock ticks.
struct CpuTimes {
  int64_t total = 0, idle = 0, steal = 0;
};
CpuTimes cpu_times();
double steal_share(const CpuTimes& before, const CpuTimes& after);  // of the time between

// Share of the last 10 s in which something runnable waited for a processor; absent without pressure
// accounting.
std::optional<double> cpu_pressure();

// The parts, on text and folders so that they can be tested.
std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat);
std::optional<double> parse_pressure(std::string_view text);
std::optional<int64_t> parse_memory_limit(
    std::string_view text);                                     // bytes; "max" and v1's huge number -> none
std::string cgroup_version(std::string_view proc_self_cgroup);  // of the text of /proc/self/cgroup
// The tightest memory limit of our group and its ancestors.
std::optional<int64_t> cgroup_memory_limit(std::string_view proc_self_cgroup,
                                           const std::filesystem::path& cgroup_folder);

}  // namespace fathom::machine
