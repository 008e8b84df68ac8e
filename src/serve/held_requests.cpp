#include "serve/held_requests.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

namespace fathom::serve {

using engine::FinishReason;
using engine::RequestId;
using HeldClock = std::chrono::steady_clock;

std::optional<engine::Refusal> HeldRequests::hold(const HeldPtr& one) {
  const std::lock_guard lock(mutex_);
  if (draining_)
    return engine::Refusal{engine::Refusal::Reason::stopping,
                           "the engine is stopping and takes no more requests"};
  one->received = HeldClock::now();
  one->id       = next_id_++;
  requests_.emplace(one->id, one);
  return {};
}

void HeldRequests::release(const HeldPtr& one) {
  const auto ends = [&](FinishReason reason, std::string_view error) {
    const auto now = HeldClock::now();
    const engine::RequestTimes times{
        .received = one->received, .scheduled = now, .first_token = now, .finished = now};
    one->listener({.tokens = {}, .finish = reason, .error = error, .times = &times});
    erase(one->id);
  };
  std::unique_lock lock(mutex_);
  if (one->cancelled_) {
    lock.unlock();
    return ends(*one->cancelled_, "");
  }
  // Locked until the id is known, lest the request ends before.
  auto submitted = next_.submit(std::move(one->request), [this, one](const engine::RequestOutput& output) {
    engine::RequestOutput told = output;
    engine::RequestTimes times;
    if (output.times) {
      times          = *output.times;
      times.received = one->received;
      told.times     = &times;
    }
    one->listener(told);
    if (output.finish) erase(one->id);
  });
  if (const auto* id = std::get_if<RequestId>(&submitted)) {
    one->next_id_ = *id;
    changed_.notify_all();
    return;
  }
  lock.unlock();
  ends(FinishReason::error, std::get<engine::Refusal>(submitted).message);
}

void HeldRequests::erase(RequestId id) {
  const std::lock_guard lock(mutex_);
  requests_.erase(id);
  changed_.notify_all();  // under the lock: the owner's destructor waits for it
}

HeldRequests::HeldPtr HeldRequests::cancel(RequestId id, FinishReason reason) {
  std::optional<RequestId> of_next = id;
  if (id >= first_) {
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return nullptr;
    Held& one = *found->second;
    if (!one.next_id_) {
      if (!one.cancelled_) one.cancelled_ = reason;
      return found->second;
    }
    of_next = one.next_id_;
  }
  next_.cancel(*of_next, reason);
  return nullptr;
}

bool HeldRequests::may_wait(const Held& one) const {
  const std::lock_guard lock(mutex_);
  return !one.cancelled_ && !draining_;
}

void HeldRequests::add_to(engine::GeneratorStats& stats) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, one] : requests_) {
    if (one->next_id_) continue;
    ++stats.waiting;
    stats.waiting_tokens += static_cast<int64_t>(one->request.prompt.size() + one->request.resumed.size());
  }
}

bool HeldRequests::drain(engine::TimePoint until) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return changed_.wait_until(lock, until, [&] {
    return std::all_of(requests_.begin(), requests_.end(),
                       [](const auto& one) { return one.second->next_id_.has_value(); });
  });
}

std::vector<HeldRequests::HeldPtr> HeldRequests::end() {
  std::vector<RequestId> left;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    for (const auto& [id, one] : requests_) left.push_back(id);
  }
  std::vector<HeldPtr> held;
  for (const RequestId id : left)
    if (auto one = cancel(id, FinishReason::cancelled)) held.push_back(std::move(one));
  return held;
}

void HeldRequests::wait_until_gone() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return requests_.empty(); });
}

}  // namespace fathom::serve
