#include "load/run.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "core/expect.h"

namespace fathom::load {
namespace {

using std::chrono::duration;
using State = RequestRecord::State;

constexpr auto kPollInterval = std::chrono::milliseconds(50);  // between two calls of progress and stop

// Written by the target's threads. A record belongs to its response's thread until that thread has counted
// the end.
struct Board {
  std::vector<RequestRecord> records;
  Clock::time_point start;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t completed = 0, failed = 0;

  double since_start(Clock::time_point at) const { return duration<double>(at - start).count(); }
  int64_t ended() const { return completed + failed; }
};

ResponseListener listener_of(const std::shared_ptr<Board>& board, RequestRecord& record) {
  return {.content = [board, &record](auto at) { record.content_s.push_back(board->since_start(at)); },
          .end =
              [board, &record](auto at, const ResponseEnd& end) {
                record.ended_s      = board->since_start(at);
                record.input_tokens = end.input_tokens.value_or(record.input_tokens);
                record.output_tokens =
                    end.output_tokens.value_or(static_cast<int64_t>(record.content_s.size()));
                record.error = end.error;
                record.state = end.error.empty() ? State::completed : State::failed;
                const std::lock_guard lock(board->mutex);
                ++(end.error.empty() ? board->completed : board->failed);
                board->changed.notify_one();
              }};
}

}  // namespace

RunResult run(Target& target, std::span<const Request> requests, std::span<const double> arrivals_s,
              const RunOptions& options) {
  FATHOM_EXPECT(requests.size() == arrivals_s.size(), "every request has its time of arrival");
  const auto total = static_cast<int64_t>(requests.size());
  const auto board = std::make_shared<Board>();
  board->records.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    board->records[i].scheduled_s  = arrivals_s[i];
    board->records[i].input_tokens = requests[i].input_tokens;
    board->records[i].content_s.reserve(
        static_cast<size_t>(std::min<int64_t>(requests[i].output_tokens, 4096)));
  }
  board->start = Clock::now();
  int64_t sent = 0;

  // Waits until `ready` holds or `due` has passed. False: the run was stopped.
  const auto wait = [&](Clock::time_point due, const auto& ready) {
    for (;;) {
      Progress now{.total = total, .sent = sent};
      bool done;
      {
        std::unique_lock lock(board->mutex);
        board->changed.wait_until(lock, std::min(due, Clock::now() + kPollInterval), ready);
        done          = ready() || Clock::now() >= due;
        now.completed = board->completed;
        now.failed    = board->failed;
      }
      now.elapsed_s = board->since_start(Clock::now());
      if (options.progress) options.progress(now);
      if (options.stop && options.stop()) return false;
      if (done) return true;
    }
  };
  const auto never = Clock::time_point::max();
  bool going       = true;
  for (; going && sent < total; ++sent) {
    const auto at = static_cast<size_t>(sent);
    const auto arrival =
        board->start + std::chrono::duration_cast<Clock::duration>(duration<double>(arrivals_s[at]));
    if (Clock::now() < arrival) going = wait(arrival, [] { return false; });
    if (going && options.max_concurrency > 0)
      going = wait(never, [&] { return sent - board->ended() < options.max_concurrency; });
    if (!going) break;
    RequestRecord& record     = board->records[at];
    record.state              = State::unfinished;
    ResponseListener listener = listener_of(board, record);
    record.sent_s             = board->since_start(Clock::now());
    target.send(requests[at], std::move(listener));
  }
  going = going && wait(never, [&] { return board->ended() == total; });
  if (!going) target.abandon();

  RunResult result{.interrupted = !going};
  result.duration_s = board->since_start(Clock::now());
  result.requests   = std::move(board->records);
  if (going) {
    result.duration_s = 0;
    for (const RequestRecord& record : result.requests)
      result.duration_s = std::max(result.duration_s, record.ended_s);
  }
  return result;
}

double completed_over_offered(std::span<const RequestRecord> requests, double window_s) {
  FATHOM_EXPECT(!requests.empty() && window_s > 0, "a trial offers something, for some time");
  std::vector<double> first_latencies;
  double last = 0, completed = 0;
  for (const RequestRecord& r : requests) {
    if (r.state != State::completed) continue;
    ++completed;
    last = std::max(last, r.ended_s);
    if (r.scheduled_s <= window_s / 4) first_latencies.push_back(r.ended_s - r.scheduled_s);
  }
  const double own = Distribution(std::move(first_latencies)).median().value_or(0);
  return completed / static_cast<double>(requests.size()) * window_s / std::max(window_s, last - own);
}

Saturation find_saturation(double first_rate, int bisections,
                           const std::function<std::optional<double>(double request_rate)>& trial) {
  // A factor of 2^20 either way is beyond every server. It ends the search for a target that answers
  // everything at once, or nothing.
  constexpr int kMaxDoublings = 20;
  Saturation found;
  double lost     = INFINITY;
  const auto held = [&](double rate) -> std::optional<bool> {
    const std::optional<double> ratio = trial(rate);
    if (!ratio) return {};
    found.trials.push_back({rate, *ratio});
    const bool yes = *ratio >= kHeld;
    if (yes)
      found.request_rate = std::max(found.request_rate, rate);
    else
      lost = std::min(lost, rate);
    return yes;
  };
  std::optional<bool> first = held(first_rate);
  if (!first) return found;
  double rate = first_rate;
  for (int i = 0; i < kMaxDoublings && (*first ? lost == INFINITY : found.request_rate == 0); ++i) {
    rate *= *first ? 2 : 0.5;
    if (!held(rate)) return found;
  }
  if (found.request_rate == 0 || lost == INFINITY) return found;
  for (int i = 0; i < bisections; ++i)
    if (!held(std::sqrt(found.request_rate * lost))) return found;
  return found;
}

}  // namespace fathom::load
