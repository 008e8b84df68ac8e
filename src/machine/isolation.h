// How isolated this process is from others: hypervisor, cgroup limits, stolen time, CPU pressure, free
// memory.
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
  std::string hypervisor;  // "KVM"; empty where there is none or it is unknown
  CgroupLimits cgroup;
};

// Read once, at the first call.
const Isolation& isolation();

// Threads of this process that can run at once: the CPUs of the affinity mask at program start, at most the
// cgroup's quota rounded up, whatever the calling thread is pinned to. This is the meaning of "all threads"
// in ceilings.
int usable_threads();

int64_t memory_available_bytes();  // now, within the cgroup's limit

// Time of all CPUs since boot, in clock ticks.
struct CpuTimes {
  int64_t total = 0, idle = 0, steal = 0;
};
CpuTimes cpu_times();
double steal_share(const CpuTimes& before, const CpuTimes& after);  // of the time in between

// Share of the last 10 s in which some task waited for a CPU; absent without pressure accounting (PSI).
std::optional<double> cpu_pressure();

// Parsers of texts and folders, for tests.
std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat);
std::optional<double> parse_pressure(std::string_view text);
// Bytes; nothing for "max" and for version 1's huge number.
std::optional<int64_t> parse_memory_limit(std::string_view text);
std::string cgroup_version(std::string_view proc_self_cgroup);  // of the text of /proc/self/cgroup
// The smallest memory limit of our group and its ancestors.
std::optional<int64_t> cgroup_memory_limit(std::string_view proc_self_cgroup,
                                           const std::filesystem::path& cgroup_folder);

}  // namespace fathom::machine
