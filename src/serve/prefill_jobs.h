// Computes prompts for other workers: each job writes the blocks of its prompt to the landing memory of the
// worker that asked, while the prompt is being computed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "serve/worker_protocol.h"

namespace fathom::serve {

// The rule's second half (its first: PrefillOffload::Options): no more prompts than this wait or run at once.
inline constexpr int64_t kMaxPrefillJobs = 10;

class PrefillJobs {
 public:
  // `engine` must outlive it; its device hands out its blocks. Where it ends no step for `iteration_timeout`,
  // jobs fail, so that the askers compute their prompts themselves.
  PrefillJobs(engine::Engine& engine, std::string layout, std::chrono::milliseconds iteration_timeout);
  // Cancels what runs.
  ~PrefillJobs();

  // One prompt for one asker. It leaves: cancel().
  class Job {
   public:
    void cancel() { cancelled_ = true; }

   private:
    friend class PrefillJobs;
    PrefillRequest request_;
    std::string host_;  // of the asker
    std::function<void(const Status&)> done_;
    std::atomic<bool> cancelled_ = false;
  };
  // `done` is called once, on a thread of the jobs: every slice was written, or why not. Null: as many as
  // kMaxPrefillJobs are there already, or the engine has stalled, and `done` is never called.
  std::shared_ptr<Job> start(PrefillRequest request, std::string host,
                             std::function<void(const Status&)> done);

  int64_t running() const;  // and waiting
  const std::string& layout() const { return layout_; }

 private:
  void work();
  Status run(Job& job);
  bool stalled() const;

  engine::Engine& engine_;
  const std::string layout_;
  const std::chrono::milliseconds iteration_timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  int64_t running_          = 0;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fathom::serve
