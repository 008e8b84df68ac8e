// Requests that a generator holds back until the keys and values of their prompts have come, or will not
// come, and then hands to the next generator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/generator.h"

namespace fathom::serve {

// From any thread, except where it is said.
class HeldRequests {
 public:
  struct Held {
    engine::Request request;
    engine::Listener listener;
    // Of hold().
    engine::RequestId id = 0;
    engine::TimePoint received;

   private:
    friend class HeldRequests;
    // Under mutex_.
    std::optional<engine::FinishReason> cancelled_;
    std::optional<engine::RequestId> next_id_;  // it was released
  };
  using HeldPtr = std::shared_ptr<Held>;

  // Ids are `first` and above; those of `next`, which must outlive it, are below.
  HeldRequests(engine::Generator& next, engine::RequestId first)
      : next_(next), next_id_(first), first_(first) {}

  // The refusal where it drains. Otherwise `one` has an id, and needs one release().
  std::optional<engine::Refusal> hold(const HeldPtr& one);
  // On the engine's thread, because it may call the listener: hands the request on, or ends it where it was
  // cancelled.
  void release(const HeldPtr& one);

  // Returns the request where it is still held: release() it soon. Others are cancelled where they are.
  HeldPtr cancel(engine::RequestId id, engine::FinishReason reason);
  bool may_wait(const Held& one) const;  // false: it was cancelled, or all drain

  void add_to(engine::GeneratorStats& stats) const;
  // Refuses new requests from now on; waits until none is held back. Those released may still run.
  bool drain(engine::TimePoint until);
  // Refuses new requests, cancels all that are there, and returns those that are still held.
  std::vector<HeldPtr> end();
  void wait_until_gone();  // until each has ended

 private:
  void erase(engine::RequestId id);

  engine::Generator& next_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::unordered_map<engine::RequestId, HeldPtr> requests_;
  engine::RequestId next_id_;
  bool draining_ = false;
  const engine::RequestId first_;
};

}  // namespace fathom::serve
