// For tests: a generator without a model. Its own thread yields one token a step to every request.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/generator.h"

namespace fathom::engine {

class FakeGenerator : public Generator {
 public:
  struct Limits {
    int64_t queue      = 1 << 20;  // running requests; further ones are refused
    int64_t tokens_end = 1 << 30;  // every answer fails before it has this many tokens
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

  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override {
    const std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(running_.size()) >= limits_.queue)
      return Refusal{Refusal::Reason::queue_full, "the queue is full"};
    seeds.push_back(request.sampling.seed);
    running_[++last_] = {std::move(request), std::move(listener)};
    changed_.notify_all();
    return last_;
  }
  void cancel(RequestId id, FinishReason) override {
    const std::lock_guard lock(mutex_);
    if (const auto at = running_.find(id); at != running_.end()) at->second.cancelled = true;
    changed_.notify_all();
  }
  GeneratorStats stats() const override { return {}; }
  int64_t max_context() const override { return 1 << 20; }
  bool drain(std::chrono::nanoseconds) override { return true; }

  void let_go() {
    const std::lock_guard lock(mutex_);
    limits_.holds_back = false;
    changed_.notify_all();
  }

  std::vector<uint64_t> seeds;  // sampling seeds of the requests, in order

 private:
  struct Running {
    Request request;
    Listener listener;
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
      std::vector<RequestId> ids;
      for (const auto& [id, r] : running_)
        if (r.cancelled || !limits_.holds_back) ids.push_back(id);
      for (const RequestId id : ids) {
        Running& r = running_.at(id);
        RequestOutput progress;
        const Sampled token{.id = 1};
        if (r.cancelled) {
          progress.finish = FinishReason::cancelled;
        } else if (r.tokens + 1 >= limits_.tokens_end) {
          progress.finish = FinishReason::error;
          progress.error  = "a step failed";
        } else {
          ++r.tokens;
          progress.tokens = {&token, 1};
          if (r.tokens == r.request.max_tokens) progress.finish = FinishReason::length;
        }
        const Listener listener = r.listener;
        if (progress.finish) running_.erase(id);
        lock.unlock();  // the listener may call submit() and cancel()
        listener(progress);
        lock.lock();
      }
    }
  }

  Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Running> running_;
  RequestId last_ = 0;
  bool stopped_   = false;
  std::thread thread_;
};

}  // namespace fathom::engine
