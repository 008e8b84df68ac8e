// Changes the CPU affinity of the calling thread for a scope.
#pragma once

#include <sched.h>

#include <vector>

namespace fathom {

// While it lives, the calling thread and the threads it starts may run on all of `cpus`; the destructor
// restores the earlier mask. Without it, a library's threads would inherit the one CPU that the caller is
// pinned to.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(const std::vector<int>& cpus) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const int cpu : cpus) CPU_SET(cpu, &wanted);
    sched_setaffinity(0, sizeof wanted, &wanted);
  }
  ~ScopedAffinity() { sched_setaffinity(0, sizeof before_, &before_); }
  ScopedAffinity(const ScopedAffinity&)            = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace fathom
