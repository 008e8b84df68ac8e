// Lends the calling thread other CPUs for a while.
#pragma once

#include <sched.h>

#include <vector>

namespace fathom {

// While it lives, the calling thread and the threads that it starts may run on all of `cpus`; then the thread
// gets its earlier mask back. A library that starts its own threads would otherwise inherit the one CPU we
// are pinned to.
class RunOn {
 public:
  explicit RunOn(const std::vector<int>& cpus) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const int cpu : cpus) CPU_SET(cpu, &wanted);
    sched_setaffinity(0, sizeof wanted, &wanted);
  }
  ~RunOn() { sched_setaffinity(0, sizeof before_, &before_); }
  RunOn(const RunOn&)            = delete;
  RunOn& operator=(const RunOn&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace fathom
