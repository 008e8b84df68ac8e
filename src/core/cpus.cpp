#include "core/cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/expect.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// quota / period, both in microseconds. "max" (version 2) and -1 (version 1) mean no limit.
std::optional<double> ratio(const std::string& quota, const std::string& period) {
  const auto number = [](const std::string& text) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  if (number(quota) <= 0 || number(period) <= 0) return std::nullopt;
  return number(quota) / number(period);
}

std::optional<double> quota_of_group(const fs::path& group) {
  if (const auto v2 = words_of(group / "cpu.max"); v2.size() == 2) return ratio(v2[0], v2[1]);
  const auto quota  = words_of(group / "cpu.cfs_quota_us");
  const auto period = words_of(group / "cpu.cfs_period_us");
  if (quota.size() == 1 && period.size() == 1) return ratio(quota[0], period[0]);
  return std::nullopt;
}

// The mount points of the hierarchy of a line "id:controllers:path" of /proc/self/cgroup; none if it has no
// CPU controller.
std::optional<fs::path> mount_of(const std::string& controllers, const fs::path& cgroups) {
  if (controllers.empty()) return cgroups;  // version 2
  std::istringstream list(controllers);
  for (std::string controller; std::getline(list, controller, ',');)
    if (controller == "cpu") return cgroups / (fs::exists(cgroups / "cpu") ? "cpu" : controllers);
  return std::nullopt;
}

}  // namespace

std::vector<int> allowed_cpus() {
  // The kernel refuses a mask smaller than its own, and does not report that size.
  for (int capacity = 1024;; capacity *= 2) {
    std::vector<cpu_set_t> mask(capacity / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == -1) {
      if (errno == EINVAL && capacity < (1 << 20)) continue;
      system_failed("sched_getaffinity", errno, __FILE__, __LINE__);
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < capacity; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask.data())) cpus.push_back(cpu);
    return cpus;
  }
}

void pin_this_thread(int cpu) {
  FATHOM_EXPECT(cpu >= 0, fmt::format("there is no CPU {}", cpu));
  std::vector<cpu_set_t> mask(cpu / CPU_SETSIZE + 1);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  CPU_SET_S(cpu, bytes, mask.data());
  FATHOM_SYSTEM(sched_setaffinity(0, bytes, mask.data()));
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> tightest;
  std::ifstream groups(fs::path(root) / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto mount = mount_of(line.substr(first + 1, second - first - 1), fs::path(root) / "sys/fs/cgroup");
    if (!mount) continue;
    // From our group up to the root; a container sees only the root.
    for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
      if (const auto quota = quota_of_group(*mount / group.relative_path()))
        tightest = tightest ? std::min(*tightest, *quota) : *quota;
      if (group == group.parent_path()) break;
    }
  }
  return tightest;
}

int host_threads() {
  const int allowed = static_cast<int>(allowed_cpus().size());
  const auto quota  = cpu_quota();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, allowed) : allowed;
}

}  // namespace fathom
