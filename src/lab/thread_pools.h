// The thread pools that variants run on.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/cpus.h"
#include "core/thread_pool.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

// One pool for each number of threads that variants declare; worker 0 of each is the calling thread.
class ThreadPools {
 public:
  ThreadPools() = default;
  explicit ThreadPools(std::vector<int> cpus)
      : cpus_(std::move(cpus)), all_threads_(static_cast<int>(cpus_.size())) {}
  ThreadPool& of(int threads);  // kAllThreads: every host thread
  const std::vector<int>& cpus() const { return cpus_; }
  // For references, where a variant's threads and caches are not the subject: null for CPU experiments.
  ThreadPool* of_references(Backend backend) { return backend == Backend::cuda ? &of(kAllThreads) : nullptr; }

 private:
  // Asked once, before the first pool pins this thread.
  const std::vector<int> cpus_ = allowed_cpus();
  const int all_threads_       = host_threads();
  std::map<int, std::unique_ptr<ThreadPool>> pools_;
};

}  // namespace fathom::lab
