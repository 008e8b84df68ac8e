// The KV cache that a configuration asks for.
#pragma once

#include "engine/config.h"
#include "model/gpu_kv_cache.h"

namespace fathom::engine {

// Of a GPU, whose default is bf16.
inline model::KvFormat kv_format_of(const EngineConfig& config) {
  switch (config.kv_dtype) {
    case EngineConfig::KvDtype::automatic:
    case EngineConfig::KvDtype::bf16:
      break;
    case EngineConfig::KvDtype::fp8:
      return model::KvFormat::fp8;
    case EngineConfig::KvDtype::k8v4:
      return model::KvFormat::k8v4;
    case EngineConfig::KvDtype::nvfp4:
      return model::KvFormat::nvfp4;
  }
  return model::KvFormat::bf16;
}

}  // namespace fathom::engine
