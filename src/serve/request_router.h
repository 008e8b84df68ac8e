// The engine of a router: it has no model. Requests go to decode workers, and every request is in a journal
// (what was asked, and the tokens that came) until it ends. When a worker dies, hangs, restarts or is much
// slower than the others, its requests go on at another from the tokens in the journal. A worker's answer is
// a function of prompt, answer so far and seed, so the client sees the tokens of one undisturbed engine, each
// once and in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "engine/generator.h"
#include "engine/replica_router.h"
#include "http/client.h"
#include "serve/dynamic_routing.h"
#include "serve/outlier_ejection.h"
#include "serve/retry_budget.h"
#include "serve/role_planner.h"
#include "serve/router_stats.h"
#include "serve/worker_protocol.h"

namespace fathom::serve {

class RequestRouter final : public engine::Generator {
 public:
  struct Options {
    std::vector<http::Url> workers;
    std::string api_key;  // theirs
    std::string model;    // model_fingerprint(); workers with another one are not used
    int64_t vocab_size = 0;
    std::chrono::milliseconds heartbeat{200};  // between two questions for a worker's status
    std::chrono::milliseconds timeout{1'000};  // without an answer to one, a worker counts as dead
    // A request whose worker died waits so long for another one; then it ends with an error.
    std::chrono::milliseconds patience{30'000};
    // A worker that has work and ended no step for longer counts as stalled.
    std::chrono::milliseconds iteration_timeout{60'000};
    // Whether the router says where prompts are computed. None: decode workers decide (prefill_offload.h).
    std::optional<DynamicRouting::Options> dynamic;
    // Moves workers between prefill and decode every `adjustment_interval`. Decode workers ask those of the
    // role prefill then, at the addresses by which the router knows them. Targets in ms; 0: none.
    bool planner = false;
    RolePlanner::Options plan;
    std::chrono::milliseconds adjustment_interval{10'000};
    double ttft_ms = 0, itl_ms = 0;
    OutlierEjection::Options ejection;
    RetryBudget::Options retries;  // of the requests of slow workers; others must move
  };
  static Result<std::unique_ptr<RequestRouter>> start(const Options& options);
  ~RequestRouter() override;

  // Waits until a worker answers; false at `timeout`.
  bool wait_for_worker(std::chrono::nanoseconds timeout);

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override;
  void cancel(engine::RequestId id, engine::FinishReason reason = engine::FinishReason::cancelled) override;
  engine::GeneratorStats stats() const override;
  int64_t max_context() const override;  // the smallest of the workers that live
  bool drain(std::chrono::nanoseconds timeout) override;

  RouterStats router_stats() const;
  nlohmann::ordered_json status() const;  // GET /worker/status of a router

 private:
  struct Worker {
    std::string address;
    std::unique_ptr<http::Client> client;
    bool asked = false;                                      // a heartbeat is on its way
    bool alive = false, ready = false, progressing = false;  // RouterStats::Worker
    WorkerRole role = WorkerRole::both;
    std::string incarnation;
    std::string refusal;
    std::optional<WorkerRole> assigned;  // by the planner; it becomes `role` when the worker has heard of it
    std::vector<std::string> peers;      // whom it asks for prefills
    int64_t max_context = 0;
    double utilization  = 0;
    int64_t requests = 0, tokens = 0;  // of ours at it; tokens of their prompts
    bool usable() const { return alive && ready && progressing; }
    bool prefills() const { return assigned.value_or(role) == WorkerRole::prefill; }
    std::unique_ptr<engine::ApproxPrefixCache> prefixes;
    std::vector<std::string> abandoned;  // attempts that may still run there
  };
  // A request in the journal.
  struct Entry {
    engine::RequestId id = 0;
    engine::Request request;  // `resumed`: the tokens that came
    engine::Listener listener;
    engine::RequestTimes times;
    std::vector<uint64_t> blocks;  // of its prompt, for the estimate of prefix caches
    // Held while the listener is called, so that a token is told once and in order; then mutex_ may be taken.
    std::mutex telling;
    // Under mutex_.
    int futile      = 0;           // attempts since the last token
    int64_t attempt = 0;           // events of an earlier one are dropped
    std::optional<size_t> worker;  // none: it waits for one
    bool begun = false;            // the worker has taken the attempt, and knows its name
    bool ended = false, replaying = false;
    std::optional<engine::FinishReason> cancelled;
    engine::TimePoint waits_since;
    engine::TimePoint observed_token;  // the attempt's latest
    engine::TimePoint observed;  // until then the attempt's stream was told to outliers_; none before a token
    std::vector<size_t> refused_by;  // queues that were full
    int64_t cached = 0;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  explicit RequestRouter(const Options& options);
  void beat();
  void ask_status(size_t w);
  void on_status(size_t w, int status, const std::string& body, const std::string& error);
  void leave(size_t w, MoveCause cause, std::vector<EntryPtr>& moved);
  void move(Entry& entry, MoveCause cause);
  void move_from_slow_workers();
  void observe(Entry& entry, int64_t tokens);
  DynamicRouting::Pools pools() const;
  void plan_roles();
  std::optional<RoleAssignment> assignment_of(const Worker& worker) const;
  void place(const EntryPtr& entry);
  std::optional<size_t> choose(const Entry& entry) const;
  void send(const EntryPtr& entry, size_t w, int64_t attempt, std::string body);
  void on_event(const EntryPtr& entry, int64_t attempt, WorkerOutput event);
  void on_end(const EntryPtr& entry, int64_t attempt, int status, const std::string& body,
              const std::string& error);
  void finish(const EntryPtr& entry, engine::FinishReason reason, const std::string& error);
  void close(Entry& entry, engine::FinishReason reason);
  void abandon(const Entry& entry);
  void leave_worker(Entry& entry);
  void post_cancel(const Entry& entry, int64_t attempt, size_t w);
  void post(size_t w, const std::string& target, std::string body);
  static std::string attempt_name(const Entry& entry, int64_t attempt);

  const Options options_;
  const std::string incarnation_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<Worker> workers_;
  std::unordered_map<engine::RequestId, EntryPtr> journal_;
  engine::RequestId next_id_ = 1;
  engine::GeneratorStats counters_;
  RouterStats router_stats_;  // without the workers
  OutlierEjection outliers_;
  RetryBudget retries_;
  std::optional<DynamicRouting> routing_;
  RolePlanner planner_;
  engine::TimePoint next_plan_;
  std::vector<double> ttft_s_, itl_s_;  // since the last plan
  bool draining_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace fathom::serve
