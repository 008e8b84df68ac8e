// Runs steps on the CPUs of this machine: the whole model, or the part of one rank of several
// (engine/ranked_runner.h).
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "core/buffer.h"
#include "core/thread_pool.h"
#include "engine/config.h"
#include "engine/eagle_proposer.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"
#include "model/gpt_oss.h"
#include "model/kv_cache.h"
#include "model/shard.h"

namespace fathom::engine {

// What one rank of several has of its groups. Null: there is one rank of that kind.
struct RankGroups {
  std::unique_ptr<comm::Group> tensor;    // the ranks of its stage
  std::unique_ptr<comm::Group> pipeline;  // its like of every stage
};

class CpuRunner final : public ModelRunner {
 public:
  // Of several ranks it is number `rank` (model::ShardOptions). All execute the same steps; the first rank of
  // the last stage alone samples, and rank 0 drafts. The weights are those of `weights` where it is given,
  // which need not outlive the constructor.
  CpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
            const std::array<int64_t, kKvKinds>& pages, int64_t rank = 0,
            const model::Weights* weights = nullptr);
  ~CpuRunner() override;
  CpuRunner(const CpuRunner&)            = delete;
  CpuRunner& operator=(const CpuRunner&) = delete;

  bool can_overlap(const SchedulerOutput&) const override { return false; }
  void execute_model(const SchedulerOutput& step) override;
  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override;
  Proposer* proposer() override { return drafter_.get(); }
  std::string device_name() const override;
  int threads() const override { return threads_.threads(); }
  MemoryUse memory() const override { return memory_; }
  View<const int64_t, 2> expert_load() const override { return model_.expert_load(); }
  View<const int64_t, 2> rank_load() const override { return model_.rank_load(); }
  int64_t kv_block_bytes(KvKind kind) const override;
  void read_kv_block(KvKind kind, Page page, std::span<std::byte> to) const override;
  void write_kv_block(KvKind kind, Page page, std::span<const std::byte> from) override;
  // For a rank of several, before its first step and after one that failed, where it leaves its groups so
  // that the other ranks do not wait for it. Not while a step is in flight.
  void join(RankGroups groups);
  // GptOss::place_experts. Not while a step is in flight.
  void place_experts(std::shared_ptr<const model::ExpertTable> table) {
    model_.place_experts(std::move(table), rank_ % cut_.ranks);
  }
  Status swap_weights(std::vector<model::ProcessedWeights>& ranks) override;
  bool in_flight() const { return state_of_step() != State::idle; }
  // Whether the step in flight is done within that time.
  bool wait_for(std::chrono::milliseconds time);
  // From now on the step in flight does not read the plan that it was given, which may end before it does: it
  // throws where it would. For a rank of several that takes too long.
  void give_up_step();
  // What ended the latest step; null: nothing did.
  const std::exception_ptr& failure() const { return failure_; }
  int64_t kv_heads() const { return shard_.config.num_key_value_heads; }

  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }

 private:
  // The pieces of a KvBlock, in order.
  std::vector<std::span<std::byte>> kv_block(KvKind kind, Page page) const;

  enum class State { idle, launched, done, ending };
  State state_of_step() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

  // Rows of one forward pass: first_row .. first_row + rows of the step, of `sequences` scheduled sequences
  // from first_sequence on.
  struct MicroBatch {
    int64_t first_row = 0, rows = 0;
    size_t first_sequence = 0;
    int64_t sequences     = 0;
  };

  void work();  // the loop of worker_
  void run_step();
  MicroBatch next_micro_batch(const MicroBatch& before) const;
  int64_t stage() const { return cut_.stage_of(rank_); }
  bool last_stage() const { return stage() + 1 == cut_.stages; }
  std::unique_lock<std::mutex> step_to_read();  // throws where the step was given up
  void forward(const MicroBatch& batch);
  int32_t adapter_of(const std::string& name) const;  // -1: ""
  void compute_logits(const MicroBatch& batch);       // and samples
  std::vector<model::DrawRule> draw_rules(const std::vector<size_t>& sequences);
  void sample(const std::vector<size_t>& sequences);

  const int64_t rank_;  // of all
  const model::ShardOptions cut_;
  const bool samples_;  // it is the first rank of the last stage
  const model::Shard shard_;
  const int64_t vocab_size_, max_rows_, max_logit_rows_, page_size_, most_drafts_;
  ThreadPool threads_;
  RankGroups groups_;
  model::GptOss model_;
  model::KvCache kv_;
  std::array<std::vector<int64_t>, kKvKinds> layers_;  // of each kind
  std::unique_ptr<EagleProposer> drafter_;             // null: no draft model
  std::vector<std::string> adapter_names_;
  std::vector<Sampler> samplers_;  // one for each thread
  Buffer<float> logits_;
  MemoryUse memory_;

  // The step in flight. The rank that samples, and the one that drafts, alone read *step_, while they hold
  // the lock of step_to_read(): a rank that comes late may outlive it.
  const SchedulerOutput* step_ = nullptr;  // null: it was given up
  std::mutex step_is_read_;
  int64_t micro_batch_rows_ = 0;  // at most
  struct SampledRows {
    int64_t drafts = 0;
    bool samples   = false;
  };
  std::vector<SampledRows> sampled_rows_;       // by sequence
  std::vector<int32_t> adapters_;               // by sequence; -1: none
  std::vector<int64_t> first_row_of_sequence_;  // [sequences + 1]
  std::vector<int32_t> tokens_, positions_, first_row_;
  std::array<std::vector<int32_t>, kKvKinds> block_tables_;  // [sequences, pages_per_sequence_]
  int64_t pages_per_sequence_ = 0;
  std::vector<SequenceOutput> outputs_;
  std::exception_ptr failure_;
  double forward_s_ = 0, sample_s_ = 0;

  // With async scheduling, and where there are several ranks, worker_ runs the steps.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  std::thread worker_;
};

}  // namespace fathom::engine
