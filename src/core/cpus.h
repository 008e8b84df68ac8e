// Which CPUs this process may use, and how many are worth using.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fathom {

// The CPUs of the calling thread's affinity mask, ascending. A pinned thread sees only its own.
std::vector<int> allowed_cpus();

// Binds the calling thread, and the threads it starts from now on, to one CPU.
void pin_this_thread(int cpu);

// The tightest CPU quota, in CPUs, of this process's control group and those around it (version 2 or 1);
// nothing when unlimited. `root` is where /proc and /sys are looked for.
std::optional<double> cpu_quota(const std::string& root = "/");

// Threads that can run at once: the affinity mask, capped by the quota rounded up. At least 1.
int host_threads();

}  // namespace fathom
