#include "engine/resolve_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/thread_pool.h"
#include "engine/model_runner.h"
#include "kernels/gemm/packed_weights.h"
#include "model/eagle.h"
#include "model/lora_adapter.h"
#include "model/ops.h"

namespace fathom::engine {
namespace {

int64_t blocks(int64_t tokens, const EngineConfig& config) {
  return (tokens + config.page_size - 1) / config.page_size;
}

}  // namespace

// Sliding-window layers get the pages that running sequences need, and a quarter of the full layers' pages
// for cached prefixes. Without chunked prefill a prompt needs all its pages at once.
std::array<int64_t, kKvKinds> kv_cache_pages(const model::Config& model, const EngineConfig& config) {
  const int64_t full = blocks(config.kv_tokens, config);
  const int64_t live =
      config.max_sequences * (blocks(model.sliding_window, config) + 2) + blocks(config.step_tokens, config);
  const bool chunked = config.paged_kv && config.chunked_prefill;
  const bool sliding =
      std::find(model.layers.begin(), model.layers.end(), model::Attention::sliding) != model.layers.end();
  return {full, !sliding ? 0 : chunked ? std::min(full, live + full / 4) : full};
}

namespace {

Status check(const EngineConfig& c) {
  for (const auto& [value, name] : {std::pair{c.max_context, "max_context"},
                                    {c.max_sequences, "max_sequences"},
                                    {c.kv_tokens, "kv_tokens"},
                                    {c.page_size, "page_size"},
                                    {c.step_tokens, "step_tokens"},
                                    {c.max_queued_requests, "max_queued_requests"},
                                    {c.max_queued_tokens, "max_queued_tokens"},
                                    {c.static_batch, "static_batch"}})
    if (value < 1) return Error{fmt::format("{} is {}, but must be at least 1", name, value)};
  if (c.kv_tokens < c.max_context)
    return Error{
        fmt::format("kv_tokens is {}, but one sequence may have max_context = {} tokens: give more of "
                    "the one or less of the other",
                    c.kv_tokens, c.max_context)};
  if (c.draft_tokens < 0 || c.draft_tokens > 15)
    return Error{fmt::format("draft_tokens is {}, but must be 0 to 15", c.draft_tokens)};
  if (!(c.kv_high_watermark > 0 && c.kv_high_watermark <= 1 && c.kv_low_watermark > 0) ||
      (c.kv_high_watermark < 1 && c.kv_low_watermark > c.kv_high_watermark))
    return Error{fmt::format(
        "admission closes at {} of the KV cache and opens at {}: both must be above 0 and at most 1, and "
        "--kv-low-watermark must not be above --kv-high-watermark",
        c.kv_high_watermark, c.kv_low_watermark)};
  if (c.adaptive && c.draft_budget)
    return Error{
        "--adaptive and --speculative-config both choose the lengths of drafts: leave one out, or add "
        "\"draft_budget\": false to the latter"};
  if (c.prompt_lookup_min < 1 || c.prompt_lookup_max < c.prompt_lookup_min || c.prompt_lookup_max > 64)
    return Error{fmt::format(
        "prompt_lookup_min is {} and prompt_lookup_max {}, but must be 1 to 64, the first at most "
        "the second",
        c.prompt_lookup_min, c.prompt_lookup_max)};
  if (c.gpu && c.page_size != kGpuPageSize)
    return Error{fmt::format("a page has {} tokens, but on a GPU it has {}", c.page_size, kGpuPageSize)};
  if (!c.gpu && c.kv_dtype != EngineConfig::KvDtype::automatic && !c.emulate_kv_dtype)
    return Error{
        "on CPUs keys and values are kept in fp32: --kv-cache-dtype is for --device cuda (`fathom model "
        "eval` shows on a CPU what a type costs in quality)"};
  if (!(c.gpu_memory > 0 && c.gpu_memory <= 1))
    return Error{fmt::format("gpu_memory is {}, but must be above 0 and at most 1", c.gpu_memory)};
  return Ok{};
}

Status check_pipeline(const EngineConfig& c) {
  if (c.pipeline_parallel == 1) return Ok{};
  if (c.gpu)
    return Error{
        "--pipeline-parallel-size is not implemented on GPUs: give --tensor-parallel-size, or run stages on "
        "CPUs with --device cpu"};
  if (c.eplb.enabled)
    return Error{
        "--enable-eplb counts the experts of all layers in one stage: leave --pipeline-parallel-size at 1"};
  if (c.draft_tokens > 0 && c.draft_method == EngineConfig::DraftMethod::eagle3)
    return Error{
        "a draft model reads hidden states of layers that lie in several stages: draft by \"ngram\" or "
        "\"suffix\" with --pipeline-parallel-size"};
  return Ok{};
}

// What is wrong with the settings of EPLB; ok where it is off.
Status check_eplb(const EngineConfig& c, int64_t experts) {
  if (!c.eplb.enabled) return Ok{};
  if (!c.expert_parallel)
    return Error{
        "--enable-eplb moves whole experts between ranks: give --tensor-parallel-size and "
        "--enable-expert-parallel too"};
  if (c.gpu)
    return Error{
        "--enable-eplb is not implemented on GPUs, where an expert stays on its rank: leave it out, or run "
        "ranks on CPUs with --device cpu"};
  for (const auto& [value, name] : {std::pair{c.eplb.window_size, "window_size"},
                                    {c.eplb.step_interval, "step_interval"},
                                    {c.eplb.log_balancedness_interval, "log_balancedness_interval"}})
    if (value < 1) return Error{fmt::format("--eplb-config: {} is {}, but must be at least 1", name, value)};
  const int64_t most = experts * (c.tensor_parallel - 1);
  if (c.eplb.num_redundant_experts < 0 || c.eplb.num_redundant_experts > most)
    return Error{fmt::format(
        "--eplb-config: num_redundant_experts is {}, but must be 0 to {}: a rank holds at most one "
        "replica of each of the model's {} experts, and there are {} ranks",
        c.eplb.num_redundant_experts, most, experts, c.tensor_parallel)};
  return Ok{};
}

Status check_adapters(const model::Config& config, const EngineConfig& c) {
  if (c.lora_modules.empty()) return Ok{};
  if (c.gpu)
    return Error{
        "--lora-modules is for CPUs: on a GPU serve the merged model, which `fathom train` writes beside its "
        "adapter"};
  if (c.ranks() > 1)
    return Error{
        "--lora-modules needs one rank: leave --tensor-parallel-size and --pipeline-parallel-size at 1"};
  for (size_t i = 0; i < c.lora_modules.size(); ++i) {
    const std::string& name = c.lora_modules[i].name;
    if (name.empty() || !std::ranges::all_of(name, [](char letter) { return letter > 32 && letter < 127; }))
      return Error{fmt::format(
          "--lora-modules: '{}' is no name: a name needs at least one character, all visible ASCII", name)};
    for (size_t j = 0; j < i; ++j)
      if (c.lora_modules[i].name == c.lora_modules[j].name)
        return Error{fmt::format("--lora-modules has two adapters '{}'", c.lora_modules[i].name)};
    const auto adapter = model::LoraAdapter::open(c.lora_modules[i].path, config);
    if (!adapter) return adapter.error();
  }
  return Ok{};
}

// Bytes of the KV cache of all layers on a GPU, for that many tokens.
double gpu_kv_cache_bytes(int64_t kv_tokens, const model::Config& model, EngineConfig config) {
  config.kv_tokens = kv_tokens;
  const auto pages = kv_cache_pages(model, config);
  double bytes     = 0;
  for (const model::Attention kind : model.layers)
    bytes += static_cast<double>(pages[kind == model::Attention::sliding ? kWindow : kFull]) *
             static_cast<double>(gpu_page_bytes(model, config, kind));
  return bytes;
}

// The largest number of tokens whose KV cache takes at most `bytes` on a GPU.
int64_t max_kv_tokens(int64_t bytes, const model::Config& model, const EngineConfig& config) {
  int64_t fits = 0, too_many = bytes / config.page_size + 1;  // pages
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const bool fit =
        gpu_kv_cache_bytes(middle * config.page_size, model, config) <= static_cast<double>(bytes);
    (fit ? fits : too_many) = middle;
  }
  return fits * config.page_size;
}

}  // namespace

Result<EngineConfig> resolve_config(const model::Checkpoint& checkpoint, EngineConfig c) {
  if (c.adaptive && c.draft_tokens == 0) c.draft_tokens = 4;
  if (c.activation_dtype == EngineConfig::ActivationDtype::int8) {
    if (c.gpu)
      return Error{
          "on a GPU activations are bf16: --activation-dtype int8 is for --device cpu, leave it out or at "
          "auto"};
    if (!checkpoint.config.mxfp4_experts)
      return Error{
          "--activation-dtype int8 needs experts in MXFP4, and this model's are in BF16: `fathom model "
          "quantize` writes the model with experts in MXFP4, or leave the flag at auto"};
  }
  if (const Status good = check_pipeline(c); !good) return good.error();
  if (const Status good = check_eplb(c, checkpoint.config.num_local_experts); !good) return good.error();
  if (const Status good = model::can_shard(checkpoint.config, shard_options(c)); !good) return good.error();
  if (c.gpu)
    if (const Status can = gpu_can_run(checkpoint, c); !can) return can.error();
  if (c.gpu) {
    EngineConfig known = c;
    if (c.kv_tokens == 0) known.kv_tokens = c.max_context;
    if (const Status good = check(known); !good) return good.error();
    const int64_t bytes = std::max<int64_t>(gpu_kv_bytes(checkpoint.config, c), 0);
    if (c.kv_tokens == 0) c.kv_tokens = max_kv_tokens(bytes, checkpoint.config, c);
    const int64_t wanted = std::max(c.kv_tokens, c.max_context);
    const double needed  = gpu_kv_cache_bytes(wanted, checkpoint.config, c);
    if (c.kv_tokens < c.max_context || needed > static_cast<double>(bytes))
      return Error{fmt::format(
          "beside weights and workspace, {:.2f} GB of each GPU's memory are left for keys and values, and {} "
          "tokens need {:.2f} GB: give less of --kv-tokens, --max-model-len or --max-num-batched-tokens, or "
          "more of --gpu-memory-utilization",
          static_cast<double>(bytes) * 1e-9, wanted, needed * 1e-9)};
  }
  if (const Status good = check(c); !good) return good.error();
  using Dtype             = EngineConfig::KvDtype;
  const int64_t head_dim  = checkpoint.config.head_dim;
  const bool in_few_bits  = c.kv_dtype != Dtype::automatic && c.kv_dtype != Dtype::bf16;
  const bool power_of_two = (head_dim & (head_dim - 1)) == 0;
  if (!c.gpu && in_few_bits && (head_dim % 16 != 0 || head_dim > kernels::kHeadDim))
    return Error{
        fmt::format("head_dim is {}, and a cache in few bits has heads of 16, 32, 48 or 64 dimensions: leave "
                    "--kv-cache-dtype at auto or bf16",
                    head_dim)};
  if (c.emulate_kv_hadamard && (c.gpu || c.kv_dtype == Dtype::automatic || !power_of_two))
    return Error{
        fmt::format("--kv-cache-hadamard needs a CPU, a --kv-cache-dtype that rounds (bf16, fp8, k8v4, "
                    "nvfp4) and heads of a "
                    "power of two of dimensions; head_dim is {}",
                    head_dim)};
  if (const Status good = check_adapters(checkpoint.config, c); !good) return good.error();
  if (c.draft_tokens > 0 && c.draft_method == EngineConfig::DraftMethod::eagle3) {
    if (c.gpu)
      return Error{"a draft model runs on CPUs only: draft by \"ngram\" or \"suffix\" with --device cuda"};
    ThreadPool one(1);
    const auto drafter = model::Eagle::open(c.draft_model, checkpoint, model::cpu_ops(), one);
    if (!drafter) return drafter.error();
  }
  return c;
}

}  // namespace fathom::engine
