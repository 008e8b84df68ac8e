#include "serve/slo_admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fathom::serve {
namespace {

using SloClock = std::chrono::steady_clock;

constexpr double kDecrease = 0.7;

}  // namespace

int64_t SloLimit::admitted(int64_t running) {
  reached_ = reached_ || running >= limit_;
  return epoch_;
}

void SloLimit::latency(double seconds, int64_t admitted) {
  if (admitted != epoch_) return;
  latencies_.push_back(seconds);
  if (std::ssize(latencies_) < options_.samples) return;
  const auto rank = static_cast<std::ptrdiff_t>(
      std::ceil(options_.percentile / 100 * static_cast<double>(latencies_.size())) - 1);
  std::nth_element(latencies_.begin(), latencies_.begin() + rank, latencies_.end());
  percentile_s_ = latencies_[static_cast<size_t>(rank)];
  latencies_.clear();
  if (percentile_s_ > options_.target_s) {
    ++violations_;
    grows_fast_ = false;
    limit_      = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(limit_) * kDecrease));
  } else if (reached_) {
    limit_ = std::min(grows_fast_ ? 2 * limit_ : limit_ + 1, options_.most);
  } else {
    return;  // nobody was refused: there is nothing to learn about a higher limit
  }
  ++epoch_;
  reached_ = false;
}

SloAdmission::SloAdmission(engine::Generator& generator, const SloLimit::Options& options)
    : generator_(generator), target_s_(options.target_s), state_(std::make_shared<State>(options)) {}

std::variant<engine::RequestId, engine::Refusal> SloAdmission::submit(engine::Request request,
                                                                      engine::Listener listener) {
  int64_t epoch = 0;
  {
    const std::lock_guard lock(state_->mutex);
    SloLimit& limit = state_->limit;
    if (state_->running >= limit.limit()) {
      ++state_->refused;
      return engine::Refusal{
          engine::Refusal::Reason::queue_full,
          fmt::format(
              "{} requests run already, and more would miss the target of {:.0f} ms for the first token: "
              "try again later",
              state_->running, target_s_ * 1e3)};
    }
    epoch = limit.admitted(++state_->running);
  }
  auto submitted = generator_.submit(
      std::move(request), [state = state_, listener = std::move(listener), epoch, begin = SloClock::now(),
                           first = true](const engine::RequestOutput& output) mutable {
        if (!output.tokens.empty() || output.finish) {
          const std::lock_guard lock(state->mutex);
          if (first && !output.tokens.empty())
            state->limit.latency(std::chrono::duration<double>(SloClock::now() - begin).count(), epoch);
          first = first && output.tokens.empty();
          if (output.finish) --state->running;
        }
        listener(output);
      });
  if (std::holds_alternative<engine::Refusal>(submitted)) {
    const std::lock_guard lock(state_->mutex);
    --state_->running;
  }
  return submitted;
}

SloStats SloAdmission::slo_stats() const {
  const std::lock_guard lock(state_->mutex);
  return {.limit        = state_->limit.limit(),
          .running      = state_->running,
          .refused      = state_->refused,
          .violations   = state_->limit.violations(),
          .percentile_s = state_->limit.last_percentile_s()};
}

}  // namespace fathom::serve
