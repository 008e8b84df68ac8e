// Runs steps on this process's GPUs. One copy brings a step's inputs to the device. Decode steps are replayed
// from CUDA graphs, one for each bucket of rows. Sampled tokens stay on the device, where the next step reads
// them, so that it can be launched before the host has seen them.
//
// Several GPUs (tensor parallel): one thread launches the same pass on each, and kernels wait for each other
// (kernels/collectives/all_reduce_add.h). Rank 0 has all logits and samples; the others read its tokens.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cuda/device_buffer.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "engine/config.h"
#include "engine/gpu_input_batch.h"
#include "engine/gpu_kv_copy.h"
#include "engine/graph_cache.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"
#include "model/gpt_oss_gpu.h"
#include "model/gpu_kv_cache.h"
#include "model/gpu_weights.h"

namespace fathom::engine {

class GpuRunner final : public ModelRunner {
 public:
  GpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
            const std::array<int64_t, kKvKinds>& pages);
  ~GpuRunner() override;
  GpuRunner(const GpuRunner&)            = delete;
  GpuRunner& operator=(const GpuRunner&) = delete;

  bool can_overlap(const SchedulerOutput& step) const override;
  void execute_model(const SchedulerOutput& step) override;
  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override;
  std::string device_name() const override;
  int threads() const override { return threads_.threads(); }
  MemoryUse memory() const override;
  // As one GPU has them, so that blocks travel between engines of any number of GPUs.
  int64_t kv_block_bytes(KvKind kind) const override;
  void read_kv_blocks(std::span<const KvPage> pages, const TakeKvBlock& take) override {
    kv_copy_->read(pages, take);
  }
  void write_kv_blocks(std::span<const KvPage> pages) override { kv_copy_->write(pages); }
  void prepare_kv_reads() override { kv_copy_->prepare_reads(); }
  std::shared_ptr<void> pin_host_memory(std::span<std::byte> memory) override;
  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }
  int64_t graphs() const override { return ranks_[0]->graphs.captured(); }
  int64_t graph_fallbacks() const override { return ranks_[0]->graphs.fallbacks(); }
  void record_costs(std::vector<StepCosts>* steps) override { recorded_ = steps; }

 private:
  // A step between execute_model() and get_output().
  struct StepInFlight {
    PinnedBuffer<std::byte> input;
    PinnedBuffer<int32_t> sampled;  // tokens
    Event start, end;
    int64_t sampled_rows = 0;
    // By sequence of the step: index in `sampled` of its first sampled row; -1: none.
    std::vector<int64_t> first_sampled;
    bool needs_host = false;  // some of its sequences are sampled on the host
    std::string error;
  };

  void enqueue(const SchedulerOutput& step, StepInFlight& in_flight);
  void fill_sampling(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                     const GpuBatchShape& shape, const GpuInputBatch& input, StepInFlight& in_flight) const;
  void add_costs(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                 const GpuBatchShape& shape, const GpuInputBatch& input, bool screened, StepCosts& to) const;
  // `screened`: by GptOssGpu::screened_tokens(), where can_screen().
  void forward(const GpuBatchShape& shape, int64_t first_sampled, bool screened);
  void sample(const GpuBatchShape& shape, int64_t first_sampled, bool screened);
  void replay(const GpuBatchShape& shape, bool screened);
  bool can_screen(const GpuBatchShape& shape, const GpuInputBatch& input,
                  const StepInFlight& in_flight) const;
  void send_input(StepInFlight& in_flight, const GpuInputBatch& input);
  void synchronize() const;
  struct GraphKey {
    int64_t rows, pages_per_sequence;             // 0 pages where the region has no attention
    size_t region                           = 0;  // of a piecewise graph
    bool screened                           = false;
    auto operator<=>(const GraphKey&) const = default;
  };
  void sample_on_host(const SchedulerOutput& step, const StepInFlight& in_flight,
                      std::vector<SequenceOutput>& outputs);
  // What one GPU has.
  struct Rank {
    Rank(const model::Checkpoint& checkpoint, const EngineConfig& config,
         const std::array<int64_t, kKvKinds>& pages, int64_t rank, ThreadPool& threads);

    GpuInputBatch input_batch(const GpuBatchShape& shape) const { return {shape, input.data()}; }
    StreamRef stream() const { return device.stream(); }

    const int64_t rank;
    const model::Config config;  // of its part of the model
    Device& device;
    const model::GpuWeights weights;
    model::GptOssGpu model;
    const model::GpuKvCache kv;
    DeviceBuffer<std::byte> input;
    GraphCache<GraphKey, CudaGraph> graphs;
  };
  // Calls f(rank) with the rank's GPU current, in the order of the ranks. Rank 0's is current afterwards.
  template <class F>
  void on_each_rank(F&& f);
  model::GpuBatch batch_on(const Rank& rank, const GpuBatchShape& shape) const {
    return rank.input_batch(shape).batch(shape, sampled_.view());
  }
  void logits(Rank& rank, const GpuBatchShape& shape, int64_t first_sampled);
  void screened_tokens(Rank& rank, const GpuBatchShape& shape, int64_t first_sampled);
  void sample_tokens(const GpuBatchShape& shape, int64_t first_sampled);

  const model::Config model_config_;
  const EngineConfig config_;
  const GpuBatchOptions options_;
  const int64_t max_rows_, max_sampled_rows_;
  const std::array<int64_t, kKvKinds> pages_;
  ThreadPool threads_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Device& device_;                 // of rank 0
  DeviceBuffer<int32_t> sampled_;  // tokens of the latest step
  Event sampled_event_{Event::Timing::off};
  uint32_t passes_ = 0;
  std::optional<GpuKvCopy> kv_copy_;

  std::array<StepInFlight, 2> steps_in_flight_;
  size_t oldest_in_flight_ = 0, num_in_flight_ = 0;
  // By request: index in sampled_ of the sequence's token of the latest step.
  std::unordered_map<RequestId, int32_t> sampled_index_;
  std::vector<Sampler> samplers_;  // one for each thread
  Buffer<float> host_logits_;
  double forward_s_ = 0, sample_s_ = 0;
  std::vector<StepCosts>* recorded_ = nullptr;  // of a profile
};

}  // namespace fathom::engine
