#include "machine/isolation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include "core/cpus.h"
#include "core/proc_meminfo.h"
#include "machine/topology.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = int64_t{1} << 60;  // v1 writes "no limit" as the largest multiple of a page

std::string hypervisor_signature() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __cpuid(1, eax, ebx, ecx, edx);
  if ((ecx >> 31 & 1) == 0) return {};
  __cpuid(0x40000000, eax, ebx, ecx, edx);
  char signature[13] = {};
  std::memcpy(signature, &ebx, 4);
  std::memcpy(signature + 4, &ecx, 4);
  std::memcpy(signature + 8, &edx, 4);
  return signature;
#else
  return read_text("/sys/hypervisor/type").value_or("");
#endif
}

std::string hypervisor_name(std::string_view signature) {
  if (signature.starts_with("KVMKVMKVM")) return "KVM";
  if (signature == "Microsoft Hv") return "Hyper-V";
  if (signature == "VMwareVMware") return "VMware";
  if (signature == "XenVMMXenVMM") return "Xen";
  return std::string(signature);
}

Isolation read_isolation() {
  Isolation result;
  const std::vector<std::string>& flags = topology().cpu.flags;
  const std::string signature           = hypervisor_signature();
  result.virtual_machine = !signature.empty() || std::binary_search(flags.begin(), flags.end(), "hypervisor");
  result.hypervisor      = hypervisor_name(signature);
  const std::string groups = read_text("/proc/self/cgroup").value_or("");
  result.cgroup            = {.version      = cgroup_version(groups),
                              .cpus         = cpu_quota(),
                              .memory_bytes = cgroup_memory_limit(groups, "/sys/fs/cgroup")};
  return result;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  const auto first = text.find_first_not_of(" \n");
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  int64_t value     = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return value;
}

struct CgroupLine {  // hierarchy:controllers:path; no controllers: version 2
  std::string controllers, group;
};

std::vector<CgroupLine> lines_of(std::string_view proc_self_cgroup) {
  std::vector<CgroupLine> result;
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    result.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return result;
}

// A group and its ancestors up to the root. In a container the path may belong to a hierarchy outside it:
// those folders are absent, and only the root counts.
std::vector<fs::path> group_and_ancestors(const fs::path& root, const std::string& group) {
  std::vector<fs::path> folders{root};
  fs::path folder = root;
  for (const fs::path& part : fs::path(group).relative_path()) {
    folder /= part;
    folders.push_back(folder);
  }
  return folders;
}

}  // namespace

const Isolation& isolation() {
  static const Isolation result = read_isolation();
  return result;
}

int usable_threads() {
  const int allowed                 = static_cast<int>(topology().allowed_cpus.size());
  const std::optional<double> quota = isolation().cgroup.cpus;
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, allowed) : allowed;
}

int64_t memory_available_bytes() {
  const int64_t free = proc_meminfo("MemAvailable").value_or(0);
  return std::min(free, isolation().cgroup.memory_bytes.value_or(free));
}

CpuTimes cpu_times() { return parse_cpu_times(read_text("/proc/stat").value_or("")).value_or(CpuTimes{}); }

double steal_share(const CpuTimes& before, const CpuTimes& after) {
  const int64_t total = after.total - before.total;
  return total > 0 ? static_cast<double>(after.steal - before.steal) / static_cast<double>(total) : 0.0;
}

std::optional<double> cpu_pressure() { return parse_pressure(read_text("/proc/pressure/cpu").value_or("")); }

std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat) {
  std::istringstream line{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  if (!(line >> name) || name != "cpu") return std::nullopt;
  // user nice system idle iowait irq softirq steal guest guest_nice; user already contains guest.
  int64_t ticks[8] = {};
  for (int64_t& tick : ticks)
    if (!(line >> tick)) return std::nullopt;
  CpuTimes times{.total = 0, .idle = ticks[3] + ticks[4], .steal = ticks[7]};
  for (const int64_t tick : ticks) times.total += tick;
  return times;
}

std::optional<double> parse_pressure(std::string_view text) {
  constexpr std::string_view kKey = "some avg10=";
  if (!text.starts_with(kKey)) return std::nullopt;
  double percent    = 0;
  const auto parsed = std::from_chars(text.data() + kKey.size(), text.data() + text.size(), percent);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return percent / 100;
}

std::optional<int64_t> parse_memory_limit(std::string_view text) {
  const std::optional<int64_t> bytes = parse_integer(text);
  return bytes && *bytes < kNoLimit ? bytes : std::nullopt;
}

std::string cgroup_version(std::string_view proc_self_cgroup) {
  bool v1 = false, v2 = false;
  for (const CgroupLine& line : lines_of(proc_self_cgroup)) (line.controllers.empty() ? v2 : v1) = true;
  return v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none";
}

std::optional<int64_t> cgroup_memory_limit(std::string_view proc_self_cgroup,
                                           const std::filesystem::path& cgroup_folder) {
  std::optional<int64_t> limit;
  for (const CgroupLine& line : lines_of(proc_self_cgroup)) {
    const bool v2 = line.controllers.empty();
    if (!v2 && line.controllers != "memory") continue;
    const char* mount = !v2 ? "memory" : fs::exists(cgroup_folder / "unified") ? "unified" : "";
    for (const fs::path& folder : group_and_ancestors(cgroup_folder / mount, line.group)) {
      const std::string text = read_text(folder / (v2 ? "memory.max" : "memory.limit_in_bytes")).value_or("");
      if (const std::optional<int64_t> bytes = parse_memory_limit(text); bytes && (!limit || *bytes < *limit))
        limit = bytes;
    }
  }
  return limit;
}

}  // namespace fathom::machine
