// Executes the engine's steps: one forward pass for the rows of all sequences, then sampling. A step is
// launched by execute_model() and waited for by get_output(), so that the next one can be scheduled between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/view.h"
#include "engine/config.h"
#include "engine/eplb_stats.h"
#include "engine/memory_use.h"
#include "engine/proposer.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/checkpoint.h"
#include "model/gpu_step_cost.h"
#include "model/processed_weights.h"

namespace fathom::engine {

// The result of a step for one scheduled sequence.
struct SequenceOutput {
  std::vector<Sampled> tokens;  // empty where the sequence does not sample
  int64_t rejected = 0;         // drafts
  std::string error;            // "" unless the step or its sampling failed
};

// What a launched step declares to cost, for profiles.
struct StepCosts {
  TimePoint launched;
  bool prompts = false;  // some of its rows are those of prompts
  std::vector<model::KernelCost> kernels;
};

// A page of the KV cache, and the bytes that are written to it.
struct KvPage {
  KvKind kind                       = kFull;
  Page page                         = 0;
  std::span<const std::byte> bytes  = {};
  std::shared_ptr<const void> owner = {};  // as in KvBlock
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // Whether `step` may be executed while a step is in flight whose sampled tokens it needs. Otherwise a step
  // is executed after the output of the one before, when all its tokens are known.
  virtual bool can_overlap(const SchedulerOutput& step) const = 0;
  // Launches a step. `step` and its sequences must stay valid until get_output(). If the step overlaps
  // another, they are not read after this call. Sequences may read pages that those before them in the step
  // write (reads_rows_of_step): every layer writes the keys and values of all rows first, and of several
  // passes over parts of a step the later ones have the later sequences.
  virtual void execute_model(const SchedulerOutput& step) = 0;
  // Waits for the oldest step in flight, which is `step`. Returns one output for each of its sequences, in
  // order. If the step failed, every output has the error. A null sequence finished meanwhile.
  virtual std::vector<SequenceOutput> get_output(const SchedulerOutput& step) = 0;

  // Drafts by a model that reads this one's hidden states; null: none. Not while a step is in flight.
  virtual Proposer* proposer() { return nullptr; }

  // For people: "16 threads", "NVIDIA H200".
  virtual std::string device_name() const = 0;
  virtual int threads() const             = 0;
  virtual MemoryUse memory() const { return {}; }
  // Tokens routed to each expert so far, [layers, E]; empty where the runner does not count them. This and
  // the following: not while a step is in flight.
  virtual View<const int64_t, 2> expert_load() const { return {}; }
  // The same by the rank that computed them, [layers, ranks].
  virtual View<const int64_t, 2> rank_load() const { return {}; }
  virtual const EplbStats* eplb() const { return nullptr; }  // null: experts do not move
  // Bytes of a KvBlock; 0 where there are no such layers, or the runner cannot hand its cache out.
  virtual int64_t kv_block_bytes(KvKind) const { return 0; }
  // Of these and the following, precondition: kv_block_bytes(kind) > 0, and so many bytes. Pages that are
  // read were written by steps whose output is there; a step in flight may overlap, if the runner can.
  virtual void read_kv_block(KvKind, Page, std::span<std::byte>) const {}
  virtual void write_kv_block(KvKind, Page, std::span<const std::byte>) {}
  // Several: `take` gets each one's place in `pages`, in their order, and its bytes with their owner.
  using TakeKvBlock = std::function<void(size_t, std::span<const std::byte>, std::shared_ptr<const void>)>;
  virtual void read_kv_blocks(std::span<const KvPage> pages, const TakeKvBlock& take);
  // Steps that are launched afterwards see the bytes. Where all have owners, these are kept until the bytes
  // were read, and it may return before.
  virtual void write_kv_blocks(std::span<const KvPage> pages);
  // Allocates now what reading blocks needs, so that the first prompt does not wait for it.
  virtual void prepare_kv_reads() {}
  // Makes blocks in this host memory quick to write, until the returned object goes. Null: they are as slow
  // as others.
  virtual std::shared_ptr<void> pin_host_memory(std::span<std::byte>) { return nullptr; }
  // Seconds so far.
  virtual double forward_s() const = 0;
  virtual double sample_s() const  = 0;
  virtual int64_t graphs() const { return 0; }  // CUDA graphs captured so far
  // Steps, or pieces of steps, that ran without a graph because its capture failed.
  virtual int64_t graph_fallbacks() const { return 0; }
  // From now on steps compute with these weights, a part for each rank; `ranks` gets the former ones. Copies
  // nothing. Not while a step is in flight.
  virtual Status swap_weights(std::vector<model::ProcessedWeights>& ranks);
  // From now on appends the costs of every launched step to `steps`; null: no longer. Not while a step is in
  // flight. A runner whose kernels declare no cost appends nothing.
  virtual void record_costs(std::vector<StepCosts>*) {}
};

// `pages`: the block manager's number of pages for each kind of layer. `checkpoint` must outlive the runner.
// The KV cache is allocated and resident when it returns.
std::unique_ptr<ModelRunner> make_cpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kKvKinds>& pages);

// The same on the GPU config.device, and on those after it where there are several ranks. Precondition:
// gpu_can_run() succeeds.
std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kKvKinds>& pages);
// The error says what this program, this machine or this model lacks.
Status gpu_can_run(const model::Checkpoint& checkpoint, const EngineConfig& config);
// Bytes of memory left on each rank's GPU for the KV cache beside weights and workspace. May be negative.
int64_t gpu_kv_bytes(const model::Config& model, const EngineConfig& config);
// Bytes of one page of one such layer on each rank's GPU.
int64_t gpu_page_bytes(const model::Config& model, const EngineConfig& config, model::Attention layer);

}  // namespace fathom::engine
