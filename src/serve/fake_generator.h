// For tests: an engine that answers on a thread of its own, one token a step to everybody, with no model.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/generator.h"

namespace fathom::serve {

class FakeGenerator : public engine::Generator {
 public:
  struct Limits {
    int64_t queue      = 1 << 20;  // requests under way, beyond which it refuses
    int64_t tokens_end = 1 << 30;  // every answer ends with an error before so many tokens
    bool holds_back    = false;    // no steps before let_go()
  };
  FakeGenerator() : FakeGenerator(Limits()) {}
  explicit FakeGenerator(Limits limits) : limits_(limits), thread_([this] { steps(); }) {}
  ~FakeGenerator() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    const std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(running_.size()) >= limits_.queue)
      return engine::Refusal{engine::Refusal::Reason::queue_full, "the queue is full"};
    seeds.push_back(request.sampling.seed);
    running_[++last_] = {std::move(request), std::move(listener)};
    changed_.notify_all();
    return last_;
  }
  void cancel(engine::RequestId id, engine::FinishReason) override {
    const std::lock_guard lock(mutex_);
    if (const auto at = running_.find(id); at != running_.end()) at->second.cancelled = true;
    changed_.notify_all();
  }
  engine::GeneratorStats stats() const override { return {}; }
  int64_t max_context() const override { return 1 << 20; }
  bool drain(std::chrono::nanoseconds) override { return true; }

  void let_go() {
    const std::lock_guard lock(mutex_);
    limits_.holds_back = false;
    changed_.notify_all();
  }

  std::vector<uint64_t> seeds;  // of the requests, in order

 private:
  struct Running {
    engine::Request request;
    engine::Listener listener;
    int64_t tokens = 0;
    bool cancelled = false;
  };

  void steps() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto work = [this] {
        for (const auto& [id, r] : running_)
          if (r.cancelled || !limits_.holds_back) return true;
        return false;
      };
      changed_.wait(lock, [&] { return stopped_ || work(); });
      if (stopped_) return;
      std::vector<engine::RequestId> ids;
      for (const auto& [id, r] : running_)
        if (r.cancelled || !limits_.holds_back) ids.push_back(id);
      for (const engine::RequestId id : ids) {
        Running& r = running_.at(id);
        engine::Progress progress;
        const engine::Sampled token{.id = 1};
        if (r.cancelled) {
          progress.finish = engine::FinishReason::cancelled;
        } else if (r.tokens + 1 >= limits_.tokens_end) {
          progress.finish = engine::FinishReason::error;
          progress.error  = "a step failed";
        } else {
          ++r.tokens;
          progress.tokens = {&token, 1};
          if (r.tokens == r.request.max_tokens) progress.finish = engine::FinishReason::length;
        }
        const engine::Listener listener = r.listener;
        if (progress.finish) running_.erase(id);
        lock.unlock();  // a listener may submit and cancel
        listener(progress);
        lock.lock();
      }
    }
  }

  Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<engine::RequestId, Running> running_;
  engine::RequestId last_ = 0;
  bool stopped_           = false;
  std::thread thread_;
};

}  // namespace fathom::serve
