#include "machine/topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "core/cpus.h"
#include "core/proc_meminfo.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

const fs::path kCpuFolder = "/sys/devices/system/cpu";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

int64_t to_integer(std::string_view text) {
  text          = trimmed(text);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string read_trimmed(const fs::path& path) {
  const std::optional<std::string> text = read_text(path);
  return text ? std::string(trimmed(*text)) : std::string();
}

// "32768K" of sysfs, in bytes.
int64_t parse_size(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return 0;
  const int64_t unit = text.back() == 'K' ? 1024 : text.back() == 'M' ? 1024 * 1024 : 1;
  return to_integer(text) * unit;
}

// Read before main(): the runner pins threads later, and a pinned thread sees only its own CPU.
const std::vector<int> kAllowedAtStart = allowed_cpus();

void sort_caches(std::vector<CpuCache>& caches) {
  std::sort(caches.begin(), caches.end(), [](const CpuCache& a, const CpuCache& b) {
    return std::tie(a.level, a.kind) < std::tie(b.level, b.kind);
  });
}

struct HwlocTopology {
  hwloc_topology_t handle = nullptr;
  bool loaded             = false;
  HwlocTopology() {
    if (hwloc_topology_init(&handle) != 0) return;
    hwloc_topology_set_icache_types_filter(handle, HWLOC_TYPE_FILTER_KEEP_ALL);
    loaded = hwloc_topology_load(handle) == 0;
  }
  ~HwlocTopology() {
    if (handle) hwloc_topology_destroy(handle);
  }
  HwlocTopology(const HwlocTopology&)            = delete;
  HwlocTopology& operator=(const HwlocTopology&) = delete;
};

std::string kind_of(hwloc_obj_cache_type_t type) {
  switch (type) {
    case HWLOC_OBJ_CACHE_DATA:
      return "data";
    case HWLOC_OBJ_CACHE_INSTRUCTION:
      return "instruction";
    case HWLOC_OBJ_CACHE_UNIFIED:
      break;
  }
  return "unified";
}

bool read_tree_by_hwloc(Topology& machine) {
  const HwlocTopology tree;
  if (!tree.loaded) return false;
  const auto count = [&](hwloc_obj_type_t type) { return hwloc_get_nbobjs_by_type(tree.handle, type); };

  machine.packages   = std::max(1, count(HWLOC_OBJ_PACKAGE));
  machine.cores      = std::max(1, count(HWLOC_OBJ_CORE));
  machine.threads    = std::max(1, count(HWLOC_OBJ_PU));
  machine.numa_nodes = std::max(1, count(HWLOC_OBJ_NUMANODE));

  for (int type = HWLOC_OBJ_L1CACHE; type <= HWLOC_OBJ_L3ICACHE; ++type) {
    const auto object_type  = static_cast<hwloc_obj_type_t>(type);
    const hwloc_obj_t first = hwloc_get_obj_by_type(tree.handle, object_type, 0);
    if (!first || first->attr->cache.size == 0) continue;
    machine.caches.push_back({.level      = static_cast<int>(first->attr->cache.depth),
                              .kind       = kind_of(first->attr->cache.type),
                              .bytes      = static_cast<int64_t>(first->attr->cache.size),
                              .line_bytes = first->attr->cache.linesize,
                              .shared_by  = std::max(1, hwloc_bitmap_weight(first->cpuset)),
                              .instances  = std::max(1, count(object_type))});
  }
  sort_caches(machine.caches);
  machine.source = "hwloc";
  return true;
}

void read_tree_by_sysfs(Topology& machine) {
  std::set<std::string> packages, cores;
  const std::vector<int> online = parse_cpu_list(read_trimmed(kCpuFolder / "online"));
  for (const int cpu : online) {
    const fs::path folder     = kCpuFolder / fmt::format("cpu{}", cpu) / "topology";
    const std::string package = read_trimmed(folder / "physical_package_id");
    packages.insert(package);
    cores.insert(package + ":" + read_trimmed(folder / "core_id"));
  }
  machine.packages = std::max<int>(1, packages.size());
  machine.cores    = std::max<int>(1, cores.size());
  machine.threads  = std::max<int>(1, online.size());
  machine.numa_nodes =
      std::max<int>(1, parse_cpu_list(read_trimmed("/sys/devices/system/node/online")).size());
  machine.source = "sysfs";
}

std::vector<HugePagePool> read_huge_page_pools() {
  std::vector<HugePagePool> pools;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    const std::string name = entry.path().filename();  // hugepages-2048kB
    const auto dash        = name.find('-');
    if (dash == std::string::npos) continue;
    pools.push_back({.page_bytes = to_integer(std::string_view(name).substr(dash + 1)) * 1024,
                     .pages      = to_integer(read_trimmed(entry.path() / "nr_hugepages")),
                     .free       = to_integer(read_trimmed(entry.path() / "free_hugepages"))});
  }
  std::sort(pools.begin(), pools.end(),
            [](const HugePagePool& a, const HugePagePool& b) { return a.page_bytes < b.page_bytes; });
  return pools;
}

std::string kernel_name() {
  utsname name;
  if (uname(&name) != 0) return {};
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

Topology read_topology() {
  Topology machine;
  machine.cpu               = parse_cpuinfo(read_text("/proc/cpuinfo").value_or(""));
  machine.microarchitecture = microarchitecture(machine.cpu);
  if (!read_tree_by_hwloc(machine)) read_tree_by_sysfs(machine);
  if (machine.caches.empty()) machine.caches = read_caches(kCpuFolder);
  machine.allowed_cpus = kAllowedAtStart;

  machine.memory_bytes = proc_meminfo("MemTotal").value_or(0);
  machine.page_bytes   = sysconf(_SC_PAGESIZE);
  machine.transparent_huge_pages =
      parse_selected(read_trimmed("/sys/kernel/mm/transparent_hugepage/enabled"));
  machine.huge_page_pools = read_huge_page_pools();

  const fs::path frequency = kCpuFolder / "cpu0/cpufreq";
  if (const std::string governor = read_trimmed(frequency / "scaling_governor"); !governor.empty())
    machine.governor = governor;
  if (const int64_t khz = to_integer(read_trimmed(frequency / "cpuinfo_max_freq")); khz > 0)
    machine.max_frequency_hz = 1e3 * static_cast<double>(khz);

  machine.kernel       = kernel_name();
  machine.distribution = parse_distribution(read_text("/etc/os-release").value_or(""));
  machine.compiler     = compiler_name();
  return machine;
}

}  // namespace

const Topology& topology() {
  static const Topology machine = read_topology();
  return machine;
}

const CpuCache* data_cache(const Topology& machine, int level) {
  for (const CpuCache& cache : machine.caches)
    if (cache.level == level && cache.kind != "instruction") return &cache;
  return nullptr;
}

std::optional<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return text;
}

CpuIdentity parse_cpuinfo(std::string_view text) {
  CpuIdentity cpu;
  std::istringstream lines{std::string(text)};
  for (std::string line;
       std::getline(lines, line) && !line.empty();) {  // a blank line ends the first processor
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key   = trimmed(std::string_view(line).substr(0, colon));
    const std::string_view value = trimmed(std::string_view(line).substr(colon + 1));
    if (key == "vendor_id") cpu.vendor = value;
    if (key == "model name") cpu.model_name = value;
    if (key == "cpu family") cpu.family = static_cast<int>(to_integer(value));
    if (key == "model") cpu.model = static_cast<int>(to_integer(value));
    if (key == "stepping") cpu.stepping = static_cast<int>(to_integer(value));
    if (key == "flags" || key == "Features") {  // x86, arm64
      std::istringstream words{std::string(value)};
      cpu.flags.assign(std::istream_iterator<std::string>(words), {});
      std::sort(cpu.flags.begin(), cpu.flags.end());
    }
  }
  return cpu;
}

// Families and models from the vendors' revision guides, as in Linux's arch/x86/include/asm.
std::string microarchitecture(const CpuIdentity& cpu) {
  const int m = cpu.model;
  if (cpu.vendor == "AuthenticAMD") {
    if (cpu.family == 0x17) return m >= 0x30 ? "zen2" : "zen";
    if (cpu.family == 0x19) {
      const bool zen4 = (m >= 0x10 && m <= 0x1f) || (m >= 0x60 && m <= 0x7f) || (m >= 0xa0 && m <= 0xaf);
      return zen4 ? "zen4" : "zen3";
    }
    if (cpu.family == 0x1a) return "zen5";
  }
  if (cpu.vendor == "GenuineIntel" && cpu.family == 6) {
    static const std::map<int, std::string> names = {
        {0x3f, "haswell"},   {0x4f, "broadwell"},      {0x55, "skylake"},       {0x6a, "icelake"},
        {0x6c, "icelake"},   {0x8f, "sapphirerapids"}, {0xcf, "emeraldrapids"}, {0xad, "graniterapids"},
        {0x97, "alderlake"}, {0x9a, "alderlake"},      {0x8c, "tigerlake"},     {0xb7, "raptorlake"},
    };
    if (const auto name = names.find(m); name != names.end()) return name->second;
  }
  return {};
}

std::vector<CpuCache> read_caches(const std::filesystem::path& cpu_folder) {
  struct Instances {
    CpuCache cache;
    std::set<std::string> shared_lists;
  };
  std::map<std::pair<int, std::string>, Instances> by_kind;
  std::error_code error;
  for (const auto& cpu : fs::directory_iterator(cpu_folder, error)) {
    for (const auto& index : fs::directory_iterator(cpu.path() / "cache", error)) {
      const int level  = static_cast<int>(to_integer(read_trimmed(index.path() / "level")));
      std::string kind = read_trimmed(index.path() / "type");
      if (level == 0 || kind.empty()) continue;
      kind[0]                  = static_cast<char>(kind[0] | 0x20);  // "Data" -> "data"
      const std::string shared = read_trimmed(index.path() / "shared_cpu_list");
      Instances& entry         = by_kind[{level, kind}];
      entry.shared_lists.insert(shared);
      entry.cache = {.level      = level,
                     .kind       = kind,
                     .bytes      = parse_size(read_trimmed(index.path() / "size")),
                     .line_bytes = to_integer(read_trimmed(index.path() / "coherency_line_size")),
                     .shared_by  = std::max<int>(1, parse_cpu_list(shared).size()),
                     .instances  = static_cast<int>(entry.shared_lists.size())};
    }
  }
  std::vector<CpuCache> caches;
  for (const auto& [key, entry] : by_kind) caches.push_back(entry.cache);
  sort_caches(caches);
  return caches;
}

std::string parse_selected(std::string_view text) {
  const auto open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(text.substr(open + 1, close - open - 1));
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  std::istringstream ranges{std::string(trimmed(text))};
  for (std::string range; std::getline(ranges, range, ',');) {
    if (range.empty()) continue;
    const auto dash = range.find('-');
    const int first = static_cast<int>(to_integer(std::string_view(range).substr(0, dash)));
    const int last  = dash == std::string::npos
                          ? first
                          : static_cast<int>(to_integer(std::string_view(range).substr(dash + 1)));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string parse_distribution(std::string_view os_release) {
  std::istringstream lines{std::string(os_release)};
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kKey)) continue;
    std::string name = line.substr(kKey.size());
    std::erase(name, '"');
    return name;
  }
  return {};
}

}  // namespace fathom::machine
