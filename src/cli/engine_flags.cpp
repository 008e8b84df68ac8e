#include "cli/engine_flags.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "cli/eplb_flags.h"
#include "cli/number_check.h"
#include "cli/speculative_flags.h"
#include "cli/usage_error.h"
#include "cuda/device_name.h"

namespace fathom::cli {

engine::EngineConfig EngineFlags::chosen() const {
  const auto sizes = gpu ? engine::EngineConfig::on_gpu() : engine::EngineConfig();
  if (gpu && !config.mmap) throw UsageError("--no-mmap is for CPUs: leave it out with --device cuda");
  engine::EngineConfig c = config;
  c.gpu                  = gpu;
  c.max_sequences        = max_sequences.value_or(sizes.max_sequences);
  c.kv_tokens            = kv_tokens.value_or(gpu ? 0 : std::max(sizes.kv_tokens, c.max_context));
  c.page_size            = page_size.value_or(sizes.page_size);
  c.step_tokens          = step_tokens.value_or(sizes.step_tokens);
  return baseline ? c.plain() : c;
}

const std::map<std::string, engine::EngineConfig::KvDtype>& kv_dtypes() {
  using Dtype = engine::EngineConfig::KvDtype;
  static const std::map<std::string, Dtype> dtypes{{"auto", Dtype::automatic},
                                                   {"bf16", Dtype::bf16},
                                                   {"fp8", Dtype::fp8},
                                                   {"k8v4", Dtype::k8v4},
                                                   {"nvfp4", Dtype::nvfp4}};
  return dtypes;
}

const std::map<std::string, engine::EvictionPolicy>& eviction_policies() {
  using Policy = engine::EvictionPolicy;
  static const std::map<std::string, Policy> policies{
      {"lru", Policy::lru}, {"frequency", Policy::frequency}, {"adaptive", Policy::adaptive}};
  return policies;
}

const std::map<std::string, engine::EngineConfig::ActivationDtype>& activation_dtypes() {
  using Dtype = engine::EngineConfig::ActivationDtype;
  static const std::map<std::string, Dtype> dtypes{{"auto", Dtype::automatic}, {"int8", Dtype::int8}};
  return dtypes;
}

std::function<void(int64_t, int64_t)> loading_on(ProgressDisplay& display, const std::string& model) {
  return [&display, model](int64_t done, int64_t total) {
    display.show({.experiment = model,
                  .phase      = "weights to the GPU, MB",
                  .done       = static_cast<int>(done >> 20),
                  .total      = static_cast<int>(total >> 20)});
    if (done >= total) display.clear();
  };
}

void add_engine_flags(CLI::App& verb, EngineFlags& flags) {
  engine::EngineConfig& c = flags.config;
  const auto number       = [&](const char* name, auto& value, const char* help, int64_t least = 1) {
    verb.add_option(name, value, help)->check(whole_at_least(least))->capture_default_str()->group("Engine");
  };
  const auto size = [&](const char* name, std::optional<int64_t>& value, const char* help) {
    verb.add_option(name, value, help)->check(whole_at_least(1))->group("Engine");
  };
  verb.add_option_function<std::string>(
          "--device",
          [&flags](const std::string& text) {
            flags.gpu = text != "cpu";
            if (!flags.gpu) return;
            const auto device = parse_device_id(text);
            if (!device) throw UsageError("--device " + device.error().message + ", or cpu");
            flags.config.device = *device;
          },
          "cpu (default) or cuda: this machine's GPU; of several, cuda:N is number N of those that "
          "CUDA_VISIBLE_DEVICES shows")
      ->group("Engine");
  verb.add_option("--gpu-memory-utilization", c.gpu_memory,
                  "Share of the GPU's memory that may be in use, all in all")
      ->check(between(0.01, 1))
      ->capture_default_str()
      ->group("Engine");
  verb.add_option_function<std::string>(
          "--kv-cache-dtype", [&c](const std::string& dtype) { c.kv_dtype = kv_dtypes().at(dtype); },
          "Of a GPU: auto (default, bf16), bf16, or fewer bits for more tokens in the same memory: fp8 (1.9 "
          "times as many), k8v4 (FP8 keys, 4-bit values: 2.5 times), nvfp4 (4-bit keys and values: 3.6 "
          "times)")
      ->check(CLI::IsMember(kv_dtypes()))
      ->group("Engine");
  verb.add_option_function<std::string>(
          "--activation-dtype",
          [&c](const std::string& dtype) { c.activation_dtype = activation_dtypes().at(dtype); },
          "auto (default; fp32, on a GPU bf16) or int8: on a CPU, inputs of experts in MXFP4 and of weights "
          "in "
          "int8 are rounded to 8 bits, 32 to a scale, and multiplied as integers, which is faster (`fathom "
          "model eval` shows what it costs in quality)")
      ->check(CLI::IsMember(activation_dtypes()))
      ->group("Engine");
  verb.add_option("--threads", c.threads, "CPU threads; 0: one for each CPU")
      ->check(whole_between(0, 4096))
      ->capture_default_str()
      ->group("Engine");
  number(
      "--tensor-parallel-size", c.tensor_parallel,
      "Ranks that compute every layer together, each with a part of the weights, or -tp: the GPU of --device "
      "and those after it; on CPUs threads of this process, among which --threads are divided");
  number("--pipeline-parallel-size", c.pipeline_parallel,
         "Stages, each with a part of the layers, or -pp: on CPUs threads of this process, as ranks are, of "
         "which a stage has --tensor-parallel-size");
  verb.add_flag("--enable-expert-parallel", c.expert_parallel,
                "With --tensor-parallel-size: a rank has whole experts, instead of a part of each")
      ->group("Engine");
  CLI::Option* const eplb =
      verb.add_flag(
              "--enable-eplb", c.eplb.enabled,
              "With --enable-expert-parallel, on CPUs: move experts between ranks while the engine runs, by "
              "how many tokens each had")
          ->group("Engine");
  verb.add_option_function<std::string>(
          "--eplb-config",
          [&c](const std::string& text) {
            if (const Status good = set_eplb_config(text, c.eplb); !good)
              throw UsageError(good.error().message);
          },
          R"(How, as JSON: {"window_size": 1000, "step_interval": 3000, "num_redundant_experts": 0} (defaults): )"
          "every step_interval steps experts are placed by the tokens of the last window_size steps, and a "
          "layer "
          "has so many replicas of hot experts. log_balancedness and log_balancedness_interval: print how "
          "even "
          "steps are")
      ->needs(eplb)
      ->group("Engine");
  number("--max-model-len", c.max_context, "Tokens of a sequence, prompt and answer");
  size("--max-num-seqs", flags.max_sequences, "Sequences running at once (64; on a GPU 256)");
  size("--max-num-batched-tokens", flags.step_tokens,
       "Tokens of a step, of all sequences together (512; on a GPU 8192)");
  size("--kv-tokens", flags.kv_tokens,
       "Tokens whose keys and values fit, of all sequences together (32768; on a GPU all that fit)");
  size("--block-size", flags.page_size, "Tokens of a block of the KV cache (16; on a GPU always 64)");
  number("--max-queued-requests", c.max_queued_requests, "Requests that may wait; more are refused");
  number("--max-queued-tokens", c.max_queued_tokens, "Tokens of their prompts");
  const auto watermark = [&](const char* name, double& value, const char* help) {
    verb.add_option(name, value, help)->check(between(0.01, 1))->capture_default_str()->group("Engine");
  };
  watermark("--kv-high-watermark", c.kv_high_watermark,
            "Share of the KV cache at which no more requests are admitted; 1: never");
  watermark("--kv-low-watermark", c.kv_low_watermark, "Share at which they are admitted again");
  verb.add_option_function<std::string>(
          "--prefix-cache-eviction",
          [&c](const std::string& policy) { c.eviction = eviction_policies().at(policy); },
          "Which cached prefix gives way where a block is needed: lru (default), the least recently used; "
          "frequency, first those that were never found again; adaptive, by what was missed of both kinds")
      ->check(CLI::IsMember(eviction_policies()))
      ->group("Engine");
  number("--draft-tokens", c.draft_tokens, "Tokens drafted by n-grams and verified at once; 0: none", 0);
  number("--draft-sequences", c.draft_sequences,
         "With a fixed draft length: draft only while at most this many sequences run. With a dynamic "
         "length: draft at most this times num_speculative_tokens tokens a step");
  verb.add_option_function<std::string>(
          "--speculative-config",
          [&c](const std::string& text) {
            if (const Status good = set_speculative_config(text, c); !good)
              throw UsageError(good.error().message);
          },
          R"(Drafts, as JSON: {"method": "suffix", "num_speculative_tokens": 7}. Methods: ngram (with )"
          "prompt_lookup_min, prompt_lookup_max), suffix (the sequence's text and finished answers), eagle3 "
          "(model: a "
          "draft model's folder; CPU only). Their lengths follow from what steps cost and what is accepted; "
          "with "
          R"("draft_budget": false they do not)")
      ->excludes("--draft-tokens")
      ->group("Engine");
  verb.add_flag("--adaptive", c.adaptive,
                "Tune draft length and step size at run time by what the engine's own steps take")
      ->group("Engine");
  const auto off = [&](const char* name, bool& feature, const char* help) {
    verb.add_flag_callback(
            name, [&feature] { feature = false; }, help)
        ->group("Engine");
  };
  off("--no-mmap", c.mmap,
      "Copy the weights into huge pages instead of mapping their file: a CPU reads them faster, loading "
      "takes "
      "longer, and the copy takes memory besides the file's cache");
  off("--no-continuous-batching", c.continuous_batching,
      "Static batches of 8: no request joins before all have finished");
  off("--no-paged-kv", c.paged_kv, "Reserve max-model-len tokens of KV cache for each request");
  off("--no-prefix-cache,--no-enable-prefix-caching", c.prefix_cache,
      "Do not reuse KV blocks of common prompt prefixes");
  off("--no-in-batch-prefix-caching", c.in_batch_prefix_caching,
      "Reuse KV blocks only after the step that computes them: requests that come together each compute "
      "their common prefix");
  off("--no-chunked-prefill", c.chunked_prefill, "Never split a prompt over steps");
  off("--no-async-scheduling", c.async_scheduling, "Schedule a step only after the previous one has ended");
  verb.add_flag_callback(
          "--no-graphs,--enforce-eager",
          [&c] { c.cudagraph_mode = engine::EngineConfig::CudaGraphMode::none; },
          "On a GPU, launch every kernel by itself, without CUDA graphs")
      ->group("Engine");
  verb.add_flag("--fused-experts", c.fused_experts,
                "On a GPU, both layers of the experts in one launch where a step has at most 8 rows")
      ->group("Engine");
  verb.add_flag("--early-output-projection", c.early_output_projection,
                "On a GPU, the output projection fetches weights under decode attention")
      ->group("Engine");
  off("--no-screened-argmax", c.screened_argmax,
      "Compute all logits of a few rows, instead of those that an int8 copy of the unembedding does not rule "
      "out; saves the copy's memory");
  verb.add_flag("--batch-invariant", c.batch_invariant,
                "On a GPU, bitwise the same output whatever else is in the batch (on CPUs always so)")
      ->group("Engine");
  verb.add_flag("--baseline", flags.baseline,
                "All features off (static batches, contiguous KV cache, no prefix cache, no graphs): to "
                "compare with")
      ->group("Engine");
}

}  // namespace fathom::cli
