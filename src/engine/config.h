// Configuration of an engine: resources and features.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/device_id.h"
#include "engine/block_pool.h"
#include "engine/step_record.h"

namespace fathom::engine {

inline constexpr int64_t kGpuPageSize = 64;  // tokens

struct EngineConfig {
  int threads = 0;  // 0: one for each CPU that this process may use
  // Ranks that compute every layer together, each with its part of the model (model/shard.h). On CPUs:
  // threads of this process, among which `threads` are divided. On GPUs: `device` and those after it. With
  // expert_parallel a rank has whole experts.
  int64_t tensor_parallel = 1;
  bool expert_parallel    = false;
  // Stages, each with some of the layers and with tensor_parallel ranks. A step's rows go through them in
  // micro-batches, so that stages work at the same time. On CPUs.
  int64_t pipeline_parallel = 1;
  int64_t ranks() const { return pipeline_parallel * tensor_parallel; }
  // Moves experts between ranks while the engine serves, and holds replicas of hot ones, by what was computed
  // so far (engine/expert_balancer.h). With expert_parallel, on CPUs. Answers then differ by the order of
  // sums between one placement and the next. Names and defaults are those of vLLM's EPLBConfig.
  struct Eplb {
    bool enabled                      = false;
    int64_t window_size               = 1000;  // steps whose tokens say what is hot
    int64_t step_interval             = 3000;  // steps between plans
    int64_t num_redundant_experts     = 0;     // replicas of a layer beside one of each expert
    bool log_balancedness             = false;
    int64_t log_balancedness_interval = 1;  // steps
  };
  Eplb eplb;
  // Weights are read where the checkpoint is mapped; false: from a copy in huge pages (model/safetensors.h),
  // for CPUs. For whoever opens the checkpoint (resolve_config.h).
  bool mmap             = true;
  int64_t max_context   = 4096;   // tokens of a sequence, prompt and output (vLLM: max_model_len)
  int64_t max_sequences = 64;     // running at once (vLLM: max_num_seqs)
  int64_t kv_tokens     = 32768;  // tokens that the KV cache holds, of all sequences together
  int64_t page_size     = 16;     // tokens
  // Tokens of a step, at most; more where prompts are not chunked (vLLM: max_num_batched_tokens).
  int64_t step_tokens = 512;

  // Type of the KV cache. automatic: fp32 on CPUs, bf16 on a GPU. On a GPU only, for more tokens in the same
  // memory than in bf16: fp8, 1.88 times as many; k8v4, FP8 keys and values of 4 bits, 2.46 times; nvfp4,
  // both of 4 bits, 3.56 times. Layers with a sliding window stay in bf16 beside 4 bits.
  enum class KvDtype { automatic, bf16, fp8, k8v4, nvfp4 };
  KvDtype kv_dtype = KvDtype::automatic;
  // On CPUs: keys and values are rounded as kv_dtype holds them on a GPU, and kept in fp32. It saves no
  // memory; it shows what the format costs in quality (`fathom model eval`).
  bool emulate_kv_dtype    = false;
  bool emulate_kv_hadamard = false;  // and rotated before that (model/kv_rounding.h)

  // Inputs of matrices. automatic: fp32 on CPUs, bf16 on a GPU. int8 (CPUs, experts in MXFP4): those of
  // experts and of dense weights in int8 are rounded to blocks of 32 integers with a scale each, and
  // multiplied as integers (kernels/moe/experts_int8.h, kernels/gemm/linear_int8.h). It is faster, and logits
  // err by what the rounding loses; they depend as little as before on other sequences.
  enum class ActivationDtype { automatic, int8 };
  ActivationDtype activation_dtype = ActivationDtype::automatic;

  bool gpu          = false;  // run on the GPU `device`; kv_tokens = 0 then means all that fits
  DeviceId device   = {};     // holds weights, KV cache, stream and graphs
  double gpu_memory = 0.9;    // share of the GPU's memory in use, at most, other processes included

  // Limits of the waiting queue: requests, and tokens of their prompts. Requests beyond are refused.
  int64_t max_queued_requests = 512, max_queued_tokens = int64_t{1} << 20;

  // Requests join and leave the batch at every step. Off: batches of static_batch requests in order of
  // arrival. Finished ones are left out of later steps; no request joins before the whole batch has finished.
  bool continuous_batching = true;
  int64_t static_batch     = 8;
  // Pages are allocated when they are needed, and freed behind the window. Off: a request allocates the pages
  // of a whole context when it starts.
  bool paged_kv = true;
  // Reuses cached pages of common prefixes.
  bool prefix_cache = true;
  // A prefix is found in the prefix cache from the step on that computes it, so that requests which come
  // together compute a common prefix once (block_manager.h). Off: from the end of that step on.
  bool in_batch_prefix_caching = true;
  // Which cached prefix gives way where a page is needed (block_pool.h). Answers do not depend on it.
  EvictionPolicy eviction = EvictionPolicy::lru;
  // Shares of the KV cache's pages at which admission closes and opens again (memory_pressure.h). A high
  // watermark of 1: it never closes, and sequences are preempted when pages run out.
  double kv_high_watermark = 1, kv_low_watermark = 0.7;
  // Computes prompts in chunks that fit in a step, beside the decodes. Off: a prompt in one step.
  bool chunked_prefill = true;
  // Schedules the next step while a step is in flight.
  bool async_scheduling = true;
  // How decode steps are launched on a GPU.
  enum class CudaGraphMode {
    none,       // kernel by kernel
    piecewise,  // a graph for each region between two attentions, by number of rows; attention by itself
    full,       // one graph for the step, by number of rows and of pages that attention reaches
  };
  CudaGraphMode cudagraph_mode = CudaGraphMode::full;
  // Pads the rows of decode steps to a few bucket sizes, whose graphs are captured at start. Off: a graph for
  // each number of rows, captured when it first occurs.
  bool graph_buckets = true;
  // A sequence's logits, and so its greedy output, depend on the sequence alone: not on the other sequences
  // of its steps, nor on how its prompt was chunked, cached or recomputed. Always so on CPUs. On a GPU it
  // costs speed, because one kernel with one order of summation must serve every number of rows.
  bool batch_invariant = false;
  // Rungs of decode steps of up to 8 rows on a GPU (model/gpt_oss_gpu.h, GpuDecodeOptions). The output is the
  // same. Off: together they help 8 sequences a little, and one not.
  bool fused_experts = false, early_output_projection = false;
  // In steps of up to 8 rows, none of which needs all logits (for top-k, top-p or min-p, logprobs, penalties,
  // a bias, a constraint or min_tokens): reads an int8 copy of the unembedding, and of the unembedding itself
  // only the rows that may win (kernels/sampling/screened_argmax.h, model/unembedding_screen.h). The output
  // is the same. Where there is one rank, the unembedding is in bf16 and the vocabulary not small; on a GPU
  // not with batch_invariant, whose order of summation it does not have.
  bool screened_argmax = true;
  // Tokens of a draft at most, which are verified in one step; 0: no drafts. The output is the same.
  int64_t draft_tokens = 0;
  // Fixed lengths: drafts only while at most this many sequences run. Chosen lengths: at most draft_sequences
  // x draft_tokens tokens are drafted in a step.
  int64_t draft_sequences = 4;
  enum class DraftMethod {
    ngram,   // from the sequence's earlier tokens (ngram_proposer.h)
    suffix,  // from those and from finished answers (suffix_proposer.h)
    eagle3,  // by a draft model that reads the target's hidden states (model/eagle.h); CPU only
  };
  DraftMethod draft_method  = DraftMethod::ngram;
  int64_t prompt_lookup_min = 2, prompt_lookup_max = 4;  // tokens that n-grams match
  std::string draft_model = {};                          // folder of the draft model
  // The length of each draft follows from measured costs and rates of acceptance (draft_budget.h); a step
  // that would not gain by drafts is scheduled ahead. Off: draft_tokens, fewer after a rejection.
  bool draft_budget = false;

  // Tunes draft length and step size at run time by the speed of the engine's own steps (tuner.h): no drafts,
  // drafts of up to draft_tokens / 2 and draft_tokens, and steps of a quarter of step_tokens. The default is
  // none. It is built not to fall below 0.98 of the default's speed; labs/adaptive_serving compares them. The
  // output is the same. draft_tokens = 0 means 4 then. Not with draft_budget, which chooses lengths too.
  bool adaptive = false;

  // Adapters that requests choose by name (model/lora_adapter.h). On CPUs, in one rank.
  struct LoraModule {
    std::string name, path;  // of its folder
  };
  std::vector<LoraModule> lora_modules = {};

  // Reported with answers until the weights are replaced (Engine::update_weights).
  std::string weight_version = "default";

  // Called while weights are copied to the GPU: bytes done, bytes in total.
  std::function<void(int64_t done, int64_t total)> loading = {};
  // Called after every step, on the engine's thread. It must not throw or block.
  std::function<void(const StepRecord&)> on_step = {};

  // Defaults for this process's GPU.
  static EngineConfig on_gpu() {
    EngineConfig config;
    config.gpu           = true;
    config.max_sequences = 256;
    config.kv_tokens     = 0;
    config.page_size     = kGpuPageSize;
    config.step_tokens   = 8192;
    return config;
  }
  // The same sizes with all features off.
  EngineConfig plain() const {
    EngineConfig config        = *this;
    config.continuous_batching = config.paged_kv = config.prefix_cache = false;
    config.in_batch_prefix_caching = config.chunked_prefill = config.async_scheduling = false;

    config.eplb.enabled   = false;
    config.cudagraph_mode = CudaGraphMode::none;
    config.draft_tokens   = 0;
    config.fused_experts = config.early_output_projection = config.screened_argmax = false;

    config.kv_high_watermark = 1;
    config.eviction          = EvictionPolicy::lru;
    config.adaptive          = false;
    return config;
  }
  // The baseline that each feature is compared with.
  static EngineConfig baseline() { return EngineConfig().plain(); }
};

}  // namespace fathom::engine
