// Engine flags: sizes, and a switch for each feature, with vLLM's names where it has one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cli/progress.h"
#include "engine/config.h"

namespace fathom::cli {

struct EngineFlags {
  engine::EngineConfig config;  // except for the fields below
  bool gpu = false, baseline = false;
  std::optional<int64_t> max_sequences, kv_tokens, page_size, step_tokens;  // absent: the device's default

  engine::EngineConfig chosen() const;
};

// What --kv-cache-dtype takes.
const std::map<std::string, engine::EngineConfig::KvDtype>& kv_dtypes();

// What --activation-dtype takes.
const std::map<std::string, engine::EngineConfig::ActivationDtype>& activation_dtypes();

void add_engine_flags(CLI::App& verb, EngineFlags& flags);

// EngineConfig::loading, shown on `display`, which must outlive it.
std::function<void(int64_t done, int64_t total)> loading_on(ProgressDisplay& display,
                                                            const std::string& model);

}  // namespace fathom::cli
