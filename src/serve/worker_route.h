// The routes of a worker, by which a router and other workers use its engine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "engine/engine.h"
#include "serve/prefill_jobs.h"
#include "serve/prefill_offload.h"
#include "serve/request_context.h"
#include "serve/worker_protocol.h"

namespace fathom::serve {

class Worker {
 public:
  struct Options {
    WorkerRole role = WorkerRole::both;
    PrefillOffload::Options offload;                      // its layout and fields of landings are filled in
    std::chrono::milliseconds iteration_timeout{60'000};  // PrefillJobs
  };
  // `engine` and `constraints` must outlive it. Fails where the engine's device cannot hand blocks out.
  static Result<std::unique_ptr<Worker>> start(engine::Engine& engine, const OutputConstraints& constraints,
                                               Options options);
  ~Worker();

  // ApiModel::generator and ApiModel::worker.
  engine::Generator& generator();
  void answer(const RequestContext& context);

 private:
  Worker(engine::Engine& engine, const OutputConstraints& constraints, WorkerRole role);
  double utilization(const engine::GeneratorStats& stats) const;
  void status(const RequestContext& context) const;
  void generate(const RequestContext& context);
  void cancel(const RequestContext& context);
  void prefill(const RequestContext& context);
  void assign_role(const RequestContext& context);

  engine::Engine& engine_;
  const OutputConstraints& constraints_;
  std::atomic<WorkerRole> role_;
  const std::string incarnation_;  // of this process: a restarted one has another
  std::string model_;
  // Running attempts by the router's name. Listeners share it: the engine calls them after this has gone.
  struct Attempts {
    std::mutex mutex;
    std::unordered_map<std::string, engine::RequestId> ids;
  };
  const std::shared_ptr<Attempts> attempts_ = std::make_shared<Attempts>();
  std::unique_ptr<PrefillOffload> offload_;
  std::unique_ptr<PrefillJobs> jobs_;
};

}  // namespace fathom::serve
