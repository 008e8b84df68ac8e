// Runs steps on this machine's CPUs.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "engine/config.h"
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
            const std::array<int64_t, kGroups>& pages);
  ~CpuRunner() override;
  CpuRunner(const CpuRunner&)            = delete;
  CpuRunner& operator=(const CpuRunner&) = delete;

  bool can_follow(const StepPlan&) const override { return false; }
  void launch(const StepPlan& plan) override;
  std::vector<StepOutput> collect(const StepPlan& plan) override;
  std::string where() const override;
  int threads() const override { return threads_.threads(); }
  View<const int64_t, 2> expert_load() const override { return model_.expert_load(); }
  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }

 private:
  // Rows first .. first + count of the step, of entries from `entry` on, one forward pass.
  struct Piece {
    int64_t first = 0, count = 0;
    size_t entry    = 0;
    int64_t entries = 0;
  };

  void work();
  void run();
  Piece next_piece(const Piece& before) const;
  void forward(const Piece& piece);
  void sample(const Piece& piece);

  const int64_t vocab_size_, max_rows_, logit_rows_, page_size_;
  ThreadPool threads_;
  model::GptOss model_;
  model::KvCache kv_;
  std::vector<Sampler> samplers_;  // one a thread
  Buffer<float> logits_;

  // The step in flight.
  const StepPlan* plan_ = nullptr;
  std::vector<int64_t> row_of_entry_;  // and one past the last
  std::vector<int32_t> tokens_, positions_, first_row_;
  std::array<std::vector<int32_t>, kGroups> tables_;  // [entries, columns_]
  int64_t columns_ = 0;
  std::vector<StepOutput> outputs_;
  double forward_s_ = 0, sample_s_ = 0;

  // With asynchronous steps, a thread of its own runs them.
  std::mutex mutex_;
  std::condition_variable changed_;
  enum class State { idle, launched, done, ending } state_ = State::idle;
  std::thread worker_;
};

}  // namespace fathom::engine
