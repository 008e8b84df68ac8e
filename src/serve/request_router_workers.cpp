// What the router knows of its workers: their health, their load, and the roles that the planner gives them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"
#include "serve/request_router.h"

namespace fathom::serve {
namespace {

using RouterJson  = nlohmann::ordered_json;
using RouterClock = std::chrono::steady_clock;

}  // namespace

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
