// What a call may not leave changed in the threads that it ran on, since the calls of the other variants run
// there too: flags of the floating-point unit, the CPUs of the thread, its priority. And in the process: the
// environment, by which libraries are set when they are opened (NVIDIA_TF32_OVERRIDE, OMP_NUM_THREADS).
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "lab/verified_call.h"

namespace fathom::lab {

struct ThreadState {
  uint32_t floating_point = 0;  // rounding and subnormals; not the sticky exception flags
  cpu_set_t cpus{};
  int nice = 0;

  static ThreadState of_this_thread();
  // What this thread has changed since, in words; changes it back. Empty where nothing differs.
  std::string undo_changes() const;
};

// The states of a pool's threads, the calling one among them.
class ThreadStates {
 public:
  explicit ThreadStates(ThreadPool& pool);
  // After a prepare() of `variant`: the same, but variables that it set for a library which it opened are put
  // back without a word.
  std::optional<Caught> after_prepare(const VariantInfo& variant);
  // After a call of `variant`: undoes what it changed. A variant with processes of its own may change them.
  std::optional<Caught> undo_changes(const VariantInfo& variant);

 private:
  ThreadPool& pool_;
  std::vector<ThreadState> before_;
};

}  // namespace fathom::lab
