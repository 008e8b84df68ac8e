// The engine: requests in, tokens out (docs/design.md section 5). Its thread runs the step loop: schedule,
// execute on a ModelRunner, notify the listeners.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
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
#include "engine/kv_store.h"
#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "engine/tuner.h"
#include "engine/weight_update.h"
#include "model/checkpoint.h"

namespace fathom::engine {

class Engine final : public Generator {
 public:
  // Fails for an unreadable folder and for a configuration that does not fit the model or the machine.
  static Result<std::unique_ptr<Engine>> open(const std::filesystem::path& folder,
                                              const EngineConfig& config);
  // `checkpoint` must outlive it.
  static Result<std::unique_ptr<Engine>> start(const model::Checkpoint& checkpoint,
                                               const EngineConfig& config);
  // With a runner of the caller's; `pages` is the number of pages for each kind of layer.
  using MakeRunner = std::function<std::unique_ptr<ModelRunner>(const std::array<int64_t, kKvKinds>& pages)>;
  static Result<std::unique_ptr<Engine>> start(const model::Checkpoint& checkpoint,
                                               const EngineConfig& config, const MakeRunner& make_runner);
  // Cancels unfinished requests.
  ~Engine() override;

  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override;
  void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) override;
  GeneratorStats stats() const override;
  int64_t max_context() const override { return config_.max_context; }
  bool drain(std::chrono::nanoseconds timeout) override;

  // Why submit() would refuse this request, were the queue empty.
  std::optional<Refusal> refusal(const Request& request) const;

  // Runs `work` soon, on the engine's thread between two launches. From any thread. It must not throw; it is
  // dropped if the engine ends before.
  void with_kv(std::function<void(KvStore&)> work);
  // Loads weights in the background and swaps them between two steps (engine/weight_update.h). The prefix
  // cache is empty afterwards. From any thread. Refuses at once where a device or a feature cannot, and while
  // an update is under way; other errors go to `done`, and leave the old weights in use. Blocks that came
  // from other engines (with_kv) or go to them (Request::on_kv_block) are of whatever weights wrote them.
  Status update_weights(WeightUpdate update, WeightUpdater::Done done);

  // Bytes of a block of the prefix cache; 0 where there are no such layers, or the device cannot hand it out.
  int64_t kv_block_bytes(KvKind kind) const { return runner_->kv_block_bytes(kind); }

  // Its weights and tensors are those of the start, and gone after the first update where open() read them.
  const model::Checkpoint& checkpoint() const { return checkpoint_; }
  const EngineConfig& config() const { return config_; }
  int threads() const { return runner_->threads(); }
  // Tokens routed to each expert so far, [layers, E]; empty where the runner does not count them. Only when
  // drained.
  View<const int64_t, 2> expert_load() const { return runner_->expert_load(); }
  // ModelRunner::record_costs. When drained.
  void record_costs(std::vector<StepCosts>* steps) { runner_->record_costs(steps); }
  std::string device_name() const { return runner_->device_name(); }  // "16 threads", "NVIDIA H200"

 private:
  struct Cancellation {
    RequestId id;
    FinishReason reason;
  };
  // A listener's next call. Listeners are called after the next step was launched.
  struct Notification {
    Sequence* sequence;
    std::unique_ptr<Sequence> finished;  // owns `sequence` if it has finished
    std::vector<Sampled> tokens;
    std::optional<FinishReason> reason;
    std::string error;
  };

  static Result<std::unique_ptr<Engine>> start(std::unique_ptr<model::Checkpoint> owned,
                                               const model::Checkpoint& checkpoint,
                                               const EngineConfig& config, const MakeRunner& make_runner);
  Engine(std::unique_ptr<model::Checkpoint> owned, const model::Checkpoint& checkpoint,
         const EngineConfig& config, const MakeRunner& make_runner);

  void loop();
  bool swap_is_due();
  void swap_weights();
  bool has_work() const { return unfinished_ > 0 || !kv_work_.empty(); }  // under mutex_
  bool receive_requests(bool in_flight);
  SchedulerOutput schedule();
  void execute(const SchedulerOutput& step);
  std::vector<SequenceOutput> get_output(const SchedulerOutput& step);
  bool process_output(SchedulerOutput& step, std::vector<SequenceOutput> outputs);
  void process_output(const ScheduledSequence& scheduled, SequenceOutput& output);
  void report_kv_blocks(const ScheduledSequence& scheduled);
  StepYield yield_of(const SchedulerOutput& step) const;
  void tune(StepYield yield);
  void finish_cancelled();
  void run_kv_work();
  void drop_finished(SchedulerOutput& step, bool overlapped, bool failed);
  void finish(Sequence& sequence, FinishReason reason, std::vector<Sampled> tokens = {},
              std::string error = {});
  void notify_listeners();
  void update_stats(const SchedulerOutput& step);
  void time_step(const SchedulerOutput& step, std::span<const SequenceOutput> outputs);

  const std::unique_ptr<model::Checkpoint> owned_;
  const model::Checkpoint& checkpoint_;
  model::Safetensors tensors_;  // of the latest update; used by the engine's thread only
  const EngineConfig config_;
  BlockManager blocks_;
  Scheduler scheduler_;
  const std::unique_ptr<ModelRunner> runner_;

  WeightUpdater updater_;

  // Used by the engine's thread only.
  std::unordered_map<RequestId, Sequence*> sequences_;
  std::vector<Cancellation> cancels_;
  std::vector<Notification> notifications_;
  GeneratorStats counters_;
  TimePoint last_output_;                   // of the latest step, while steps follow each other; else none
  std::deque<StepRecord> steps_in_flight_;  // for config_.on_step
  Tuner tuner_;                             // has but one setting unless config_.adaptive
  TimePoint step_began_;                    // when the step before it was done, or when it was launched
  std::vector<int64_t> last_expert_load_;   // before the latest step, for its record

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<std::unique_ptr<Sequence>> inbox_;
  std::vector<Cancellation> cancel_inbox_;
  std::vector<std::function<void(KvStore&)>> kv_work_;
  GeneratorStats stats_;        // copied from counters_ once a step
  std::string weight_version_;  // written by the engine's thread only
  int64_t unfinished_ = 0, queued_ = 0, queued_tokens_ = 0;
  TimePoint progressed_;  // when a step ended, or when work came to an engine that had none
  RequestId next_id_ = 1;
  bool draining_ = false, ending_ = false;

  std::thread thread_;
};

}  // namespace fathom::engine
