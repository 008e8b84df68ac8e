// Checks an engine's configuration and sizes its KV cache.
#pragma once

#include <array>
#include <cstdint>

#include "core/result.h"
#include "engine/block_manager.h"
#include "engine/config.h"
#include "kernels/gemm/packed_weights.h"
#include "model/checkpoint.h"
#include "model/shard.h"

namespace fathom::engine {

// The configuration with kv_tokens decided where it is 0, and checked against the model and the machine.
Result<EngineConfig> resolve_config(const model::Checkpoint& checkpoint, EngineConfig config);

// How the configuration wants a checkpoint opened.
inline model::Safetensors::Load weights_load(const EngineConfig& config) {
  return config.mmap ? model::Safetensors::Load::mapped : model::Safetensors::Load::copied;
}

// How the configuration cuts a model into ranks.
inline model::ShardOptions shard_options(const EngineConfig& config) {
  return {.ranks           = config.tensor_parallel,
          .stages          = config.pipeline_parallel,
          .expert_parallel = config.expert_parallel,
          .movable_experts = config.eplb.enabled};
}

// Whether there is an int8 copy of the unembedding, by which steps of up to kMaxGemvRows rows are screened
// (EngineConfig::screened_argmax).
inline bool has_screening(const model::Config& model, const EngineConfig& config) {
  return config.screened_argmax && config.ranks() == 1 && !(config.gpu && config.batch_invariant) &&
         kernels::padded(model.vocab_size) >= kernels::kFullKRows && !model.int8_dense;
}

// Number of KV-cache pages for each kind of layer.
std::array<int64_t, kKvKinds> kv_cache_pages(const model::Config& model, const EngineConfig& config);

}  // namespace fathom::engine
