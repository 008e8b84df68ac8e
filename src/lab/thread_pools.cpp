#include "lab/thread_pools.h"

#include "lab/experiment_info.h"

namespace fathom::lab {

ThreadPool& ThreadPools::of(int threads) {
  if (threads == kAllThreads) threads = all_threads_;
  auto& pool = pools_[threads];
  if (!pool) pool = std::make_unique<ThreadPool>(ThreadPool::Options{.threads = threads, .cpus = cpus_});
  return *pool;
}

}  // namespace fathom::lab
