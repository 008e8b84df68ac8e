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

// Means over the workers that can be used.
DynamicRouting::Pools RequestRouter::pools() const {
  DynamicRouting::Pools pools;
  int64_t decode_workers = 0;
  for (const Worker& worker : workers_) {
    if (!worker.usable()) continue;
    const bool prefill = worker.prefills();
    ++(prefill ? pools.prefill_workers : decode_workers);
    (prefill ? pools.prefill : pools.decode) += worker.utilization;
  }
  pools.prefill /= static_cast<double>(std::max<int64_t>(pools.prefill_workers, 1));
  pools.decode /= static_cast<double>(std::max<int64_t>(decode_workers, 1));
  return pools;
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

void RequestRouter::ask_status(size_t w) {
  {
    const std::lock_guard lock(mutex_);
    if (workers_[w].asked) return;
    workers_[w].asked = true;
  }
  struct Answer {
    int status = 0;
    std::string body;
  };
  const auto answer = std::make_shared<Answer>();
  http::ClientRequest call{.method = "GET", .target = "/worker/status", .timeout = options_.timeout};
  if (!options_.api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + options_.api_key});
  workers_[w].client->start(
      std::move(call),
      {.status = [answer](int status) { answer->status = status; },
       .body   = [answer](RouterClock::time_point, std::string_view piece) { answer->body += piece; },
       .end    = [this, w, answer](
                  RouterClock::time_point,
                  const std::string& error) { on_status(w, answer->status, answer->body, error); }});
}

void RequestRouter::on_status(size_t w, int status, const std::string& body, const std::string& error) {
  const RouterJson said = RouterJson::parse(body, nullptr, false);
  std::vector<EntryPtr> moved;
  std::vector<std::string> abandoned;
  std::optional<RoleAssignment> assignment;
  {
    const std::lock_guard lock(mutex_);
    Worker& worker      = workers_[w];
    worker.asked        = false;
    const bool answered = error.empty() && status == 200 && said.is_object();
    const auto role     = answered ? role_named(said.value("role", "")) : std::nullopt;
    worker.refusal      = answered ? "" : error.empty() ? fmt::format("status {}", status) : error;
    if (answered && !role) worker.refusal = "it is no worker: start it with --role";
    if (role && said.value("model", "") != options_.model) worker.refusal = "it has another model";
    worker.alive = answered;
    worker.ready = worker.refusal.empty();
    if (!worker.ready) {
      leave(w, MoveCause::dead, moved);
    } else {
      const std::string incarnation = said.value("incarnation", "");
      if (!worker.incarnation.empty() && worker.incarnation != incarnation) {
        leave(w, MoveCause::dead, moved);  // it was restarted: what ran there is gone
        worker.abandoned.clear();
      }
      worker.incarnation = incarnation;
      worker.role        = *role;
      worker.max_context = said.value("max_context", int64_t{0});
      worker.utilization = said.value("utilization", 0.0);
      worker.progressing =
          std::chrono::duration<double>(said.value("stalled_s", 0.0)) <= options_.iteration_timeout;
      if (!worker.progressing) leave(w, MoveCause::stalled, moved);
      abandoned.swap(worker.abandoned);
      worker.peers = said.value("peers", std::vector<std::string>());
      assignment   = assignment_of(worker);
    }
  }
  changed_.notify_all();
  for (const std::string& attempt : abandoned)
    post(w, "/worker/cancel", http::text_of({{"attempt", attempt}}));
  if (assignment) post(w, "/worker/role", http::text_of(json_of(*assignment)));
  for (const EntryPtr& entry : moved) place(entry);
}

// Under mutex_: what this worker should hear, if it differs from what it said. So a restarted one is told
// anew.
std::optional<RoleAssignment> RequestRouter::assignment_of(const Worker& worker) const {
  if (!options_.planner) return {};
  RoleAssignment assignment{.role = worker.assigned.value_or(worker.role), .peers = {}};
  if (!worker.prefills())
    for (const Worker& other : workers_)
      if (other.ready && other.prefills()) assignment.peers.push_back(other.address);
  if (assignment.role == worker.role && assignment.peers == worker.peers) return {};
  return assignment;
}

// Under mutex_. The pool that gives a worker away gives the one with the fewest requests.
void RequestRouter::plan_roles() {
  next_plan_       = RouterClock::now() + options_.adjustment_interval;
  const auto share = [](std::vector<double>& seconds, double target_ms) {
    double latency = 0;
    if (!seconds.empty() && target_ms > 0) {
      const auto p95 = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) * 95 / 100);
      std::nth_element(seconds.begin(), p95, seconds.end());
      latency = *p95 * 1e3 / target_ms;
    }
    seconds.clear();
    return latency;
  };
  const DynamicRouting::Pools loads = pools();
  int64_t decode_workers            = 0;
  for (const Worker& worker : workers_) decode_workers += worker.usable() && !worker.prefills();
  const auto role = planner_.plan(
      {.workers     = loads.prefill_workers,
       .utilization = loads.prefill,
       .latency     = share(ttft_s_, options_.ttft_ms)},
      {.workers = decode_workers, .utilization = loads.decode, .latency = share(itl_s_, options_.itl_ms)});
  if (!role) return;
  Worker* least = nullptr;
  for (Worker& worker : workers_) {
    if (!worker.usable() || worker.prefills() == (*role == WorkerRole::prefill)) continue;
    if (!least ||
        std::pair(worker.requests, worker.utilization) < std::pair(least->requests, least->utilization))
      least = &worker;
  }
  if (!least) return;
  least->assigned = *role;
  ++router_stats_.role_changes;
}

// Under mutex_: the worker's requests go on elsewhere. Should it wake up, what it still says is dropped.
void RequestRouter::leave(size_t w, MoveCause cause, std::vector<EntryPtr>& moved) {
  for (const auto& [id, entry] : journal_) {
    if (entry->worker != w) continue;
    move(*entry, cause);
    moved.push_back(entry);
  }
}

// Under mutex_. The caller then places it.
void RequestRouter::move(Entry& entry, MoveCause cause) {
  abandon(entry);
  leave_worker(entry);
  ++entry.attempt;
  ++router_stats_.moves[static_cast<size_t>(cause)];
  entry.replaying = true;
}

// Under mutex_: the time since the last call, and what came in it. It begins with an attempt's first token.
void RequestRouter::observe(Entry& entry, int64_t tokens) {
  if (!entry.worker) return;
  const auto now = RouterClock::now();
  if (options_.planner && tokens > 0 && entry.observed_token != engine::TimePoint())
    itl_s_.push_back(std::chrono::duration<double>(now - entry.observed_token).count() /
                     static_cast<double>(tokens));
  if (tokens > 0) entry.observed_token = now;
  if (entry.observed != engine::TimePoint())
    outliers_.observe(*entry.worker, std::chrono::duration<double>(now - entry.observed).count(), tokens,
                      now);
  if (entry.observed != engine::TimePoint() || tokens > 0) entry.observed = now;
}

// Under mutex_. A request of a slow worker could stay there, so the retry budget bounds how many move.
void RequestRouter::move_from_slow_workers() {
  for (const auto& [id, entry] : journal_) observe(*entry, 0);
  const auto now = RouterClock::now();
  std::vector<bool> serves;
  for (const Worker& worker : workers_) serves.push_back(worker.usable() && !worker.prefills());
  router_stats_.ejections += static_cast<int64_t>(outliers_.judge(serves, now).size());
  const auto ejected = [&](size_t w) { return outliers_.ejected(w, now); };
  for (const auto& [id, entry] : journal_) {
    if (!entry->worker || !ejected(*entry->worker)) continue;
    const auto other = choose(*entry);
    if (!other || ejected(*other) || !retries_.take(now)) continue;
    move(*entry, MoveCause::slow);
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

RouterStats RequestRouter::router_stats() const {
  const std::lock_guard lock(mutex_);
  RouterStats stats = router_stats_;
  for (size_t w = 0; w < workers_.size(); ++w) {
    const Worker& worker = workers_[w];
    stats.workers.push_back({.address     = worker.address,
                             .incarnation = worker.incarnation,
                             .refusal     = worker.refusal,
                             .role        = worker.role,
                             .alive       = worker.alive,
                             .ready       = worker.ready,
                             .progressing = worker.alive && worker.progressing,
                             .ejected     = outliers_.ejected(w, RouterClock::now()),
                             .requests    = worker.requests,
                             .utilization = worker.utilization});
  }
  return stats;
}

RouterJson RequestRouter::status() const {
  const RouterStats stats = router_stats();
  RouterJson workers      = RouterJson::array();
  for (const RouterStats::Worker& worker : stats.workers)
    workers.push_back({{"address", worker.address},
                       {"role", name_of(worker.role)},
                       {"incarnation", worker.incarnation},
                       {"alive", worker.alive},
                       {"ready", worker.ready},
                       {"progressing", worker.progressing},
                       {"ejected", worker.ejected},
                       {"requests", worker.requests},
                       {"utilization", worker.utilization},
                       {"refusal", worker.refusal}});
  const auto counts = [](const auto& names, const auto& values) {
    RouterJson json = RouterJson::object();
    for (size_t i = 0; i < names.size(); ++i) json[std::string(names[i])] = values[i];
    return json;
  };
  const std::lock_guard lock(mutex_);
  return {{"role", name_of(WorkerRole::router)},
          {"incarnation", incarnation_},
          {"model", options_.model},
          {"journal", journal_.size()},
          {"replays", stats.replays},
          {"dropped_events", stats.dropped_events},
          {"ejections", stats.ejections},
          {"role_changes", stats.role_changes},
          {"moves", counts(kMoveCauses, stats.moves)},
          {"decisions", counts(DynamicRouting::kDecisionNames, stats.decisions)},
          {"workers", std::move(workers)}};
}

}  // namespace fathom::serve
