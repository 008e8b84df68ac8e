// Runs steps on the CPUs of this machine.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

namespace fathom::engine {

class CpuRunner final : public ModelRunner {
 public:
  CpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
            const std::array<int64_t, kKvKinds>& pages);
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
  int64_t kv_block_bytes(KvKind kind) const override;
  void read_kv_block(KvKind kind, Page page, std::span<std::byte> to) const override;
  void write_kv_block(KvKind kind, Page page, std::span<const std::byte> from) override;
  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }

 private:
  // The pieces of a KvBlock, in order.
  std::vector<std::span<std::byte>> kv_block(KvKind kind, Page page) const;

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
  void forward(const MicroBatch& batch);
  void sample(const MicroBatch& batch);

  const int64_t vocab_size_, max_rows_, max_logit_rows_, page_size_;
  ThreadPool threads_;
  model::GptOss model_;
  model::KvCache kv_;
  std::array<std::vector<int64_t>, kKvKinds> layers_;  // of each kind
  std::unique_ptr<EagleProposer> drafter_;             // null: no draft model
  std::vector<Sampler> samplers_;                      // one for each thread
  Buffer<float> logits_;
  MemoryUse memory_;

  // The step in flight.
  const SchedulerOutput* step_ = nullptr;
  std::vector<int64_t> first_row_of_sequence_;  // [sequences + 1]
  std::vector<int32_t> tokens_, positions_, first_row_;
  std::array<std::vector<int32_t>, kKvKinds> block_tables_;  // [sequences, pages_per_sequence_]
  int64_t pages_per_sequence_ = 0;
  std::vector<SequenceOutput> outputs_;
  double forward_s_ = 0, sample_s_ = 0;

  // With async scheduling, worker_ runs the steps.
  std::mutex mutex_;
  std::condition_variable changed_;
  enum class State { idle, launched, done, ending } state_ = State::idle;
  std::thread worker_;
};

}  // namespace fathom::engine
