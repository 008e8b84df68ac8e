// Who computes steps for the engine: one forward pass for the rows of all sequences, then each one's next
// token. A step is launched and collected; between the two, whoever scheduled it can plan the next.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/view.h"
#include "engine/config.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"

namespace fathom::engine {

// What a step brought to one entry of its plan.
struct StepOutput {
  std::vector<Sampled> tokens;  // none where the entry does not sample
  int64_t rejected = 0;         // drafts
  std::string error;            // why there is no token; "" where there is one
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Whether `plan` may be launched while a step is in flight whose tokens it needs. Else a step is launched
  // when the one before is collected, and all of its rows' tokens are known.
  virtual bool can_follow(const StepPlan& plan) const = 0;
  // `plan` and its sequences stay where they are until collect(), unless it followed another: then nobody
  // looks at them again.
  virtual void launch(const StepPlan& plan) = 0;
  // Of the oldest step in flight, which is `plan`: one output for each entry, in order. A step that could not
  // run is an error of each of them. Entries without a sequence have ended meanwhile.
  virtual std::vector<StepOutput> collect(const StepPlan& plan) = 0;

  // What it runs on, for people: "16 threads", "NVIDIA H200".
  virtual std::string where() const = 0;
  virtual int threads() const       = 0;
  // How many rows each expert has had so far, [layers, E]; empty where nobody counts them. This and the
  // following: not while a step is in flight.
  virtual View<const int64_t, 2> expert_load() const { return {}; }
  // Seconds so far.
  virtual double forward_s() const = 0;
  virtual double sample_s() const  = 0;
  virtual int64_t graphs() const { return 0; }  // that it has captured
};

// For pages as the block manager has them. `checkpoint` must outlive it. The cache's memory is there when it
// returns.
std::unique_ptr<ModelRunner> make_cpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kGroups>& pages);

// The same on this process's GPU, which gpu_can_run() is content with.
std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kGroups>& pages);
// The error says what this program, this machine or this model lacks.
Status gpu_can_run(const model::Checkpoint& checkpoint);
// How much of the GPU's memory is there for keys and values, when the rest of such an engine is. May be
// negative.
int64_t gpu_kv_bytes(const model::Config& model, const EngineConfig& config);
// Of a page of one layer there.
int64_t gpu_page_bytes(const model::Config& model, const EngineConfig& config);

}  // namespace fathom::engine
