// The CPUs this process may use: affinity and cgroup quota.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fathom {

// The CPUs of the calling thread's affinity mask, ascending. A pinned thread sees only its own.
std::vector<int> allowed_cpus();

// Pins the calling thread, and the threads it starts later, to one CPU.
void pin_this_thread(int cpu);

// The smallest CPU quota, in CPUs, of this process's cgroup and its ancestors (version 2 or 1); nothing when
// unlimited. `root` is the folder that holds /proc and /sys.
std::optional<double> cpu_quota(const std::string& root = "/");

// Threads that can run at once: the CPUs of the affinity mask, at most the quota rounded up. At least 1.
int host_threads();

}  // namespace fathom
