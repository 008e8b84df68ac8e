// Runs steps on this process's GPU. What a step needs to know travels there in one copy; decode steps are
// replayed from graphs, each captured once for a number of rows that is rounded up with rows of padding;
// tokens that were chosen there are read there by the next step, so that it can be launched before the host
// has seen them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/cuda_graph.h"
#include "core/device_buffer.h"
#include "core/thread_pool.h"
#include "engine/config.h"
#include "engine/gpu_step.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"
#include "model/gpt_oss_gpu.h"
#include "model/gpu_kv_cache.h"
#include "model/gpu_weights.h"

struct CUevent_st;
struct CUgraphExec_st;

namespace fathom::engine {

class GpuRunner final : public ModelRunner {
 public:
  GpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
            const std::array<int64_t, kGroups>& pages);
  ~GpuRunner() override;
  GpuRunner(const GpuRunner&)            = delete;
  GpuRunner& operator=(const GpuRunner&) = delete;

  bool can_follow(const StepPlan& plan) const override;
  void launch(const StepPlan& plan) override;
  std::vector<StepOutput> collect(const StepPlan& plan) override;
  std::string where() const override;
  int threads() const override { return threads_.threads(); }
  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }
  int64_t graphs() const override { return static_cast<int64_t>(graphs_.size()); }

 private:
  // A step between launch() and collect().
  struct Flight {
    PinnedBuffer<std::byte> input;
    PinnedBuffer<int32_t> chosen;
    CUevent_st* begun   = nullptr;
    CUevent_st* ended   = nullptr;
    int64_t chosen_rows = 0;
    std::vector<int64_t> place;  // of each entry, of its first row that samples, in `chosen`; -1: none
    bool on_host = false;        // the host chooses for some of its entries
    std::string error;
  };

  void enqueue(const StepPlan& plan, Flight& flight);
  void fill_rules(const StepPlan& plan, const std::vector<GpuPiece>& pass, const GpuPassShape& shape,
                  const GpuPassInput& input, Flight& flight) const;
  void compute(const GpuPassShape& shape, int64_t first_chosen);
  void choose(const GpuPassShape& shape, int64_t first_chosen);
  void replay(const GpuPassShape& shape);
  struct GraphKey {
    int64_t rows, columns;                        // columns: 0 where it does not matter
    size_t piece                            = 0;  // of a pass that is replayed in pieces
    auto operator<=>(const GraphKey&) const = default;
  };
  // Launches the graph of that key, which is captured from what `enqueue` enqueues where there is none yet.
  void replay(const GraphKey& key, const std::function<void()>& enqueue);
  void choose_on_host(const StepPlan& plan, const Flight& flight, std::vector<StepOutput>& outputs);
  GpuPassInput device_input(const GpuPassShape& shape) const { return {shape, input_.data()}; }

  const model::Config model_config_;
  const EngineConfig config_;
  const GpuPassRules rules_;
  const int64_t max_rows_, max_chosen_;
  Device& device_;
  ThreadPool threads_;
  const model::GpuWeights weights_;
  model::GptOssGpu model_;
  const model::GpuKvCache kv_;
  DeviceBuffer<std::byte> input_;
  DeviceBuffer<int32_t> chosen_;
  std::map<GraphKey, CudaGraph> graphs_;

  std::array<Flight, 2> flights_;
  size_t first_flight_ = 0, in_flight_ = 0;
  std::unordered_map<RequestId, int32_t> latest_;  // where the last step leaves a sequence's token
  std::vector<Sampler> samplers_;                  // one a thread
  Buffer<float> host_logits_;
  double forward_s_ = 0, sample_s_ = 0;
};

}  // namespace fathom::engine
