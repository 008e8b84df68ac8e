// The engine: requests in, tokens out, all of them in one step at a time (docs/design.md section 5). Its
// thread schedules, a ModelRunner computes, listeners are told.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "engine/block_manager.h"
#include "engine/config.h"
#include "engine/generator.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"

namespace fathom::engine {

class Engine final : public Generator {
 public:
  // Errors: of the folder, or of a configuration that makes no sense with its model.
  static Result<std::unique_ptr<Engine>> open(const std::filesystem::path& folder,
                                              const EngineConfig& config);
  // `checkpoint` must outlive it.
  static Result<std::unique_ptr<Engine>> start(const model::Checkpoint& checkpoint,
                                               const EngineConfig& config);
  // On a runner of the caller's, who gets how many pages there are of either kind.
  using MakeRunner = std::function<std::unique_ptr<ModelRunner>(const std::array<int64_t, kGroups>& pages)>;
  static Result<std::unique_ptr<Engine>> start(const model::Checkpoint& checkpoint,
                                               const EngineConfig& config, const MakeRunner& make_runner);
  // Ends what is left as cancelled.
  ~Engine() override;

  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override;
  void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) override;
  GeneratorStats stats() const override;
  int64_t max_context() const override { return config_.max_context; }
  bool drain(std::chrono::nanoseconds timeout) override;

  const model::Checkpoint& checkpoint() const { return checkpoint_; }
  const EngineConfig& config() const { return config_; }
  int threads() const { return runner_->threads(); }
  // How many rows each expert has had so far, [layers, E]; empty where nobody counts them. When drained.
  View<const int64_t, 2> expert_load() const { return runner_->expert_load(); }
  std::string where() const { return runner_->where(); }  // "16 threads", "NVIDIA H200"

 private:
  struct Cancellation {
    RequestId id;
    FinishReason reason;
  };
  // What to tell one listener, once the next step is on its way.
  struct Note {
    Sequence* sequence;
    std::unique_ptr<Sequence> finished;  // the same, where it has ended
    std::vector<Sampled> tokens;
    std::optional<FinishReason> reason;
    std::string error;
  };

  static Result<std::unique_ptr<Engine>> start(std::unique_ptr<const model::Checkpoint> owned,
                                               const model::Checkpoint& checkpoint,
                                               const EngineConfig& config, const MakeRunner& make_runner);
  Engine(std::unique_ptr<const model::Checkpoint> owned, const model::Checkpoint& checkpoint,
         const EngineConfig& config, const MakeRunner& make_runner);

  std::optional<Refusal> refusal(const Request& request) const;
  void loop();
  bool take_inbox(bool in_flight);
  void land(StepPlan& flown, std::vector<StepOutput> outputs);
  void land(const StepEntry& entry, StepOutput& output);
  void end_cancelled();
  void forget_ended(StepPlan& plan, bool launched) const;
  void end(Sequence& sequence, FinishReason reason, std::vector<Sampled> tokens = {}, std::string error = {});
  void tell();
  void count(const StepPlan& plan);

  const std::unique_ptr<const model::Checkpoint> owned_;
  const model::Checkpoint& checkpoint_;
  const EngineConfig config_;
  BlockManager blocks_;
  Scheduler scheduler_;
  const std::unique_ptr<ModelRunner> runner_;

  // Of the engine's thread.
  std::unordered_map<RequestId, Sequence*> sequences_;
  std::vector<Cancellation> cancels_;
  std::vector<Note> notes_;
  GeneratorStats counted_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<std::unique_ptr<Sequence>> inbox_;
  std::vector<Cancellation> cancel_inbox_;
  GeneratorStats stats_;  // a copy of counted_, once a step
  int64_t unfinished_ = 0, queued_ = 0, queued_tokens_ = 0;
  RequestId next_id_ = 1;
  bool draining_ = false, ending_ = false;

  std::thread thread_;
};

}  // namespace fathom::engine
