#include "serve/request_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "http/sse.h"
#include "http/sse_reader.h"
#include "serve/random_id.h"

namespace fathom::serve {
namespace {

using RouterJson = nlohmann::ordered_json;
using engine::FinishReason;
using engine::RequestId;
using RouterClock = std::chrono::steady_clock;

constexpr size_t kMaxJournal       = 4096;
constexpr int64_t kPageTokens      = 16;      // of the estimate of prefix caches
constexpr int64_t kEstimatedTokens = 32'768;  // size of a worker's prefix cache
constexpr int kMaxFutile           = 5;       // attempts in a row that yield no token
constexpr size_t kMaxAbandoned     = 4096;
constexpr auto kLongestAttempt     = std::chrono::hours(1);  // then it goes on as another attempt

}  // namespace

RequestRouter::RequestRouter(const Options& options)
    : options_(options),
      incarnation_(new_id("")),
      outliers_(options.ejection),
      retries_(options.retries),
      planner_(options.plan),
      next_plan_(RouterClock::now() + options.adjustment_interval) {
  if (options.dynamic) routing_.emplace(*options.dynamic);
}

Result<std::unique_ptr<RequestRouter>> RequestRouter::start(const Options& options) {
  std::unique_ptr<RequestRouter> router(new RequestRouter(options));
  for (const http::Url& url : options.workers) {
    auto client = http::Client::open(url, 1);
    if (!client) return client.error();
    Worker& worker  = router->workers_.emplace_back();
    worker.address  = http::to_string(url);
    worker.client   = std::move(client).value();
    worker.prefixes = std::make_unique<engine::ApproxPrefixCache>(kEstimatedTokens / kPageTokens);
  }
  router->thread_ = std::thread([&router = *router] { router.beat(); });
  return router;
}

RequestRouter::~RequestRouter() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Worker& worker : workers_) worker.client->stop();
  std::vector<EntryPtr> left;
  for (const auto& [id, entry] : journal_) left.push_back(entry);
  for (const EntryPtr& entry : left) finish(entry, FinishReason::cancelled, "");
}

bool RequestRouter::wait_for_worker(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.usable(); });
  });
}

std::string RequestRouter::attempt_name(const Entry& entry, int64_t attempt) {
  return fmt::format("{}.{}", entry.id, attempt);
}

std::variant<RequestId, engine::Refusal> RequestRouter::submit(engine::Request request,
                                                               engine::Listener listener) {
  using enum engine::Refusal::Reason;
  const int64_t context = max_context();
  const auto prompt     = static_cast<int64_t>(request.prompt.size());
  if (request.prompt.empty())
    return engine::Refusal{invalid, "the prompt is empty: it needs at least one token"};
  if (const Status good = engine::check(request.sampling, options_.vocab_size); !good)
    return engine::Refusal{invalid, good.error().message};
  if (request.max_tokens < 1 || request.max_tokens > context - prompt)
    return engine::Refusal{too_long,
                           fmt::format("the prompt has {} tokens and {} more are asked for, but the "
                                       "context is {} tokens: shorten the prompt or lower max_tokens",
                                       prompt, request.max_tokens, context)};
  auto entry            = std::make_shared<Entry>();
  entry->blocks         = engine::prompt_blocks(request, kPageTokens);
  entry->request        = std::move(request);
  entry->listener       = std::move(listener);
  entry->times.received = RouterClock::now();
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return engine::Refusal{stopping, "the router is stopping and takes no more requests"};
    if (std::none_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.usable(); }))
      return engine::Refusal{stopping, "no worker answers the router: try again in a moment"};
    if (journal_.size() >= kMaxJournal)
      return engine::Refusal{
          queue_full, fmt::format("{} requests are running already: try again later", journal_.size())};
    retries_.request();
    entry->id = next_id_++;
    journal_.emplace(entry->id, entry);
  }
  place(entry);
  return entry->id;
}

// Of the workers that are usable, the one with the fewest prompt tokens to compute before this request's
// first; one that is ejected, or of the role prefill, only where there is no other.
std::optional<size_t> RequestRouter::choose(const Entry& entry) const {
  std::optional<size_t> best;
  const auto now  = RouterClock::now();
  const auto cost = [&](size_t w) {
    const Worker& worker = workers_[w];
    const int64_t cached = worker.prefixes->match(entry.blocks) * kPageTokens;
    return std::tuple(worker.prefills(), outliers_.ejected(w, now), worker.tokens - cached);
  };
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!workers_[w].usable() || std::count(entry.refused_by.begin(), entry.refused_by.end(), w) > 0)
      continue;
    if (!best || cost(w) < cost(*best)) best = w;
  }
  return best;
}

// Begins the next attempt, if a worker is there; beat() tries again.
void RequestRouter::place(const EntryPtr& entry) {
  std::string body;
  size_t worker   = 0;
  int64_t attempt = 0;
  {
    std::unique_lock lock(mutex_);
    if (entry->ended || entry->worker) return;
    if (entry->cancelled) {
      lock.unlock();
      return finish(entry, *entry->cancelled, "");
    }
    const auto chosen = choose(*entry);
    if (!chosen) {
      if (entry->waits_since == engine::TimePoint()) entry->waits_since = RouterClock::now();
      return;
    }
    worker  = *chosen;
    attempt = ++entry->attempt;
    if (entry->replaying) {
      ++router_stats_.replays;
      // It may be the request that ends its workers.
      if (++entry->futile > kMaxFutile) {
        lock.unlock();
        return finish(entry, FinishReason::error,
                      fmt::format("{} workers in a row died or gave up on this request", kMaxFutile));
      }
    }
    entry->replaying = false;
    entry->worker    = worker;
    entry->begun     = false;
    entry->observed = entry->observed_token = {};
    Worker& at                              = workers_[worker];
    if (routing_ && !at.prefills()) {
      const auto tokens = static_cast<int64_t>(entry->request.prompt.size() + entry->request.resumed.size());
      const int64_t known = at.prefixes->match(entry->blocks) * kPageTokens;
      const auto decision = routing_->decide(tokens - known, pools());
      ++router_stats_.decisions[static_cast<size_t>(decision)];
      entry->request.do_remote_prefill = DynamicRouting::remote(decision);
    }
    ++at.requests;
    at.tokens += static_cast<int64_t>(entry->request.prompt.size());
    at.prefixes->insert(entry->blocks);
    RouterJson json = json_of(entry->request);
    json["attempt"] = incarnation_ + "." + attempt_name(*entry, attempt);
    body            = http::text_of(json);
  }
  send(entry, worker, attempt, std::move(body));
}

void RequestRouter::send(const EntryPtr& entry, size_t w, int64_t attempt, std::string body) {
  struct Answer {
    int status = 0;
    std::string body;
    http::SseReader events{size_t{8} << 20};
    std::string broken;
  };
  const auto answer = std::make_shared<Answer>();
  http::ClientRequest call{.method  = "POST",
                           .target  = "/worker/generate",
                           .headers = {{"Content-Type", "application/json"}},
                           .body    = std::move(body),
                           .timeout = kLongestAttempt};
  if (!options_.api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + options_.api_key});
  workers_[w].client->start(
      std::move(call),
      {.status =
           [this, entry, attempt, answer, w](int status) {
             answer->status = status;
             if (status != 200) return;
             bool cancel = false;
             {
               const std::lock_guard lock(mutex_);
               if (entry->attempt != attempt || entry->ended) return;
               entry->begun       = true;
               entry->waits_since = {};
               entry->refused_by.clear();
               if (entry->times.scheduled == engine::TimePoint()) entry->times.scheduled = RouterClock::now();
               cancel = entry->cancelled.has_value();
             }
             if (cancel) post_cancel(*entry, attempt, w);
           },
       .body =
           [this, entry, attempt, answer](RouterClock::time_point, std::string_view piece) {
             if (answer->status != 200) {
               if (answer->body.size() < (64 << 10)) answer->body += piece;
               return;
             }
             const Status read = answer->events.add(piece, [&](std::string_view data) {
               auto event = parse_output(data);
               if (event)
                 on_event(entry, attempt, std::move(event).value());
               else
                 answer->broken = event.error().message;
             });
             if (!read) answer->broken = read.error().message;
           },
       .end =
           [this, entry, attempt, answer](RouterClock::time_point, const std::string& error) {
             on_end(entry, attempt, answer->status, answer->body, error.empty() ? answer->broken : error);
           }});
}

// Its worker is told to stop when it next answers.
void RequestRouter::abandon(const Entry& entry) {
  std::vector<std::string>& abandoned = workers_[*entry.worker].abandoned;
  if (abandoned.size() < kMaxAbandoned)
    abandoned.push_back(incarnation_ + "." + attempt_name(entry, entry.attempt));
}

void RequestRouter::leave_worker(Entry& entry) {
  if (!entry.worker) return;
  Worker& worker = workers_[*entry.worker];
  --worker.requests;
  worker.tokens -= static_cast<int64_t>(entry.request.prompt.size());
  entry.worker.reset();
}

// Tokens that came before are skipped; after a gap the attempt is given up.
void RequestRouter::on_event(const EntryPtr& entry, int64_t attempt, WorkerOutput event) {
  std::unique_lock telling(entry->telling);
  bool again = false;
  engine::RequestTimes times;
  {
    const std::lock_guard lock(mutex_);
    auto& known         = entry->request.resumed;
    const auto expected = static_cast<int64_t>(known.size());
    const int64_t skip  = expected - event.position;
    if (entry->ended || entry->attempt != attempt) {
      ++router_stats_.dropped_events;
      return;
    }
    // A worker that ends cancels its requests; ours was not.
    const bool given_up = event.finish == FinishReason::cancelled && !entry->cancelled;
    if (skip < 0 || given_up) {
      if (entry->worker) move(*entry, MoveCause::broken);
      again = entry->replaying = true;
    } else {
      event.tokens.erase(event.tokens.begin(),
                         event.tokens.begin() + std::min(skip, static_cast<int64_t>(event.tokens.size())));
      if (!event.tokens.empty()) {
        entry->futile = 0;
        observe(*entry, static_cast<int64_t>(event.tokens.size()));
      }
      for (const engine::Sampled& token : event.tokens) known.push_back(token.id);
      counters_.generated_tokens += static_cast<int64_t>(event.tokens.size());
      if (entry->times.first_token == engine::TimePoint() && !event.tokens.empty()) {
        entry->times.first_token = RouterClock::now();
        if (options_.planner)
          ttft_s_.push_back(
              std::chrono::duration<double>(entry->times.first_token - entry->times.received).count());
        entry->cached = event.cached_tokens;
        counters_.prompt_tokens += static_cast<int64_t>(entry->request.prompt.size());
        counters_.prefix_queried_tokens += static_cast<int64_t>(entry->request.prompt.size());
        counters_.prefix_hit_tokens += entry->cached;
      }
      if (event.finish) {
        leave_worker(*entry);
        close(*entry, *event.finish);
        times = entry->times;
      }
    }
  }
  if (again) {
    telling.unlock();
    return place(entry);
  }
  entry->listener({.tokens        = event.tokens,
                   .finish        = event.finish,
                   .error         = event.error,
                   .cached_tokens = entry->cached,
                   .drafted       = event.drafted,
                   .accepted      = event.accepted,
                   .times         = event.finish ? &times : nullptr});
}

// Under mutex_: the entry leaves the journal.
void RequestRouter::close(Entry& entry, FinishReason reason) {
  entry.ended          = true;
  entry.times.finished = RouterClock::now();
  for (engine::TimePoint* reached : {&entry.times.scheduled, &entry.times.first_token})
    if (*reached == engine::TimePoint()) *reached = entry.times.finished;
  ++counters_.finished[static_cast<size_t>(reason)];
  journal_.erase(entry.id);
  changed_.notify_all();
}

void RequestRouter::finish(const EntryPtr& entry, FinishReason reason, const std::string& error) {
  const std::lock_guard telling(entry->telling);
  engine::RequestTimes times;
  {
    const std::lock_guard lock(mutex_);
    if (entry->ended) return;
    leave_worker(*entry);
    close(*entry, reason);
    times = entry->times;
  }
  entry->listener(
      {.tokens = {}, .finish = reason, .error = error, .cached_tokens = entry->cached, .times = &times});
}

// The end of a stream. Where the answer has ended before, nothing is left to do.
void RequestRouter::on_end(const EntryPtr& entry, int64_t attempt, int status, const std::string& body,
                           const std::string& error) {
  std::string fatal;
  {
    const std::lock_guard lock(mutex_);
    if (entry->ended || entry->attempt != attempt || !entry->worker) return;
    const size_t w = *entry->worker;
    leave_worker(*entry);
    if (status == 429 || status == 503) {
      entry->refused_by.push_back(w);
    } else if (status >= 400 && status < 500) {
      const RouterJson said = RouterJson::parse(body, nullptr, false);
      fatal                 = said.is_object() && said.contains("error") && said["error"].is_object()
                                  ? said["error"].value("message", body)
                                  : fmt::format("the worker answered with status {}", status);
    } else {
      // It is asked again at the next heartbeat.
      if (!error.empty()) workers_[w].alive = false;
      entry->replaying = entry->replaying || entry->begun;
      if (entry->begun) ++router_stats_.moves[static_cast<size_t>(MoveCause::broken)];
    }
  }
  if (!fatal.empty()) return finish(entry, FinishReason::error, fatal);
  place(entry);
}

void RequestRouter::post_cancel(const Entry& entry, int64_t attempt, size_t w) {
  const int reason = static_cast<int>(entry.cancelled.value_or(FinishReason::cancelled));
  post(w, "/worker/cancel",
       http::text_of({{"attempt", incarnation_ + "." + attempt_name(entry, attempt)}, {"reason", reason}}));
}

void RequestRouter::post(size_t w, const std::string& target, std::string body) {
  http::ClientRequest call{.method  = "POST",
                           .target  = target,
                           .headers = {{"Content-Type", "application/json"}},
                           .body    = std::move(body),
                           .timeout = std::chrono::seconds(10)};
  if (!options_.api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + options_.api_key});
  workers_[w].client->start(std::move(call), {.status = [](int) {},
                                              .body   = [](RouterClock::time_point, std::string_view) {},
                                              .end    = [](RouterClock::time_point, const std::string&) {}});
}

void RequestRouter::cancel(RequestId id, FinishReason reason) {
  EntryPtr entry;
  std::optional<size_t> worker;
  int64_t attempt = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = journal_.find(id);
    if (found == journal_.end() || found->second->cancelled) return;
    entry            = found->second;
    entry->cancelled = reason;
    if (entry->begun) worker = entry->worker;
    attempt = entry->attempt;
  }
  changed_.notify_all();  // one without a worker is ended by beat()
  if (worker) post_cancel(*entry, attempt, *worker);
}

// Asks the workers for their status, and looks after requests that wait for a worker.
void RequestRouter::beat() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    for (size_t w = 0; w < workers_.size(); ++w) ask_status(w);
    lock.lock();
    std::vector<EntryPtr> waiting, lost;
    move_from_slow_workers();  // these wait for a worker then
    if (options_.planner && RouterClock::now() >= next_plan_) plan_roles();
    for (const auto& [id, entry] : journal_) {
      if (entry->worker) continue;
      entry->refused_by.clear();
      const bool too_long = entry->waits_since != engine::TimePoint() &&
                            RouterClock::now() - entry->waits_since > options_.patience;
      (too_long && !entry->cancelled ? lost : waiting).push_back(entry);
    }
    lock.unlock();
    for (const EntryPtr& entry : waiting) place(entry);
    for (const EntryPtr& entry : lost)
      finish(entry, FinishReason::error, "no worker could go on with this request");
    lock.lock();
    changed_.wait_for(lock, options_.heartbeat, [&] { return ending_; });
  }
}

engine::GeneratorStats RequestRouter::stats() const {
  const std::lock_guard lock(mutex_);
  engine::GeneratorStats stats = counters_;
  for (const auto& [id, entry] : journal_) {
    ++(entry->worker ? stats.running : stats.waiting);
    if (!entry->worker) stats.waiting_tokens += static_cast<int64_t>(entry->request.prompt.size());
  }
  return stats;
}

int64_t RequestRouter::max_context() const {
  const std::lock_guard lock(mutex_);
  int64_t context = 0;
  for (const Worker& worker : workers_)
    if (worker.max_context > 0)
      context = context == 0 ? worker.max_context : std::min(context, worker.max_context);
  return context;
}

bool RequestRouter::drain(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return changed_.wait_for(lock, timeout, [&] { return journal_.empty(); });
}

}  // namespace fathom::serve
