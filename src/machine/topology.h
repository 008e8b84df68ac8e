// Facts about this machine: processors, caches, memory and software. They do not change during the process;
// machine/isolation.h has the values that do (steal, free memory).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::machine {

struct CpuCache {
  int level                              = 0;
  std::string kind                       = {};  // data | instruction | unified
  int64_t bytes                          = 0;   // of one instance
  int64_t line_bytes                     = 0;
  int shared_by                          = 1;  // hardware threads that share one instance
  int instances                          = 1;
  bool operator==(const CpuCache&) const = default;
};

struct HugePagePool {  // of hugetlb pages, reserved by the administrator
  int64_t page_bytes = 0;
  int64_t pages = 0, free = 0;
};

struct CpuIdentity {  // of /proc/cpuinfo, first processor
  std::string vendor, model_name;
  int family = 0, model = 0, stepping = 0;
  std::vector<std::string> flags;  // sorted
};

struct Topology {
  CpuIdentity cpu;
  std::string microarchitecture;  // "zen3"; empty for processors outside our table
  int packages = 1, cores = 1, threads = 1, numa_nodes = 1;
  std::vector<int> allowed_cpus;  // of the affinity mask at program start, ascending
  std::vector<CpuCache> caches;
  int64_t memory_bytes = 0;
  int64_t page_bytes   = 0;
  std::string transparent_huge_pages;  // always | madvise | never; empty: the kernel has none
  std::vector<HugePagePool> huge_page_pools;
  std::optional<std::string> governor;     // of cpufreq; absent where no frequency is readable
  std::optional<double> max_frequency_hz;  // of cpufreq
  std::string kernel, distribution, compiler;
  std::string source;  // of the processor tree: "hwloc" or "sysfs"
};

// Read once, at the first call.
const Topology& topology();

// The data or unified cache at `level`; null where the machine does not report one.
const CpuCache* data_cache(const Topology& machine, int level);

// Parsers of texts and folders, for tests.
CpuIdentity parse_cpuinfo(std::string_view text);
std::string microarchitecture(const CpuIdentity& cpu);
std::vector<CpuCache> read_caches(const std::filesystem::path& cpu_folder);  // /sys/devices/system/cpu
std::string parse_selected(std::string_view text);       // "always [madvise] never" -> "madvise"
std::vector<int> parse_cpu_list(std::string_view text);  // "0-2,5" -> 0 1 2 5
std::string parse_distribution(std::string_view os_release);

// The contents of a small file such as those of procfs; nothing where it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path);

}  // namespace fathom::machine
