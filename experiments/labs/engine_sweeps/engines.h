// What the sweeps compare: the engine with all features off, with its defaults, and with drafts too.
#pragma once

#include "engine/config.h"

namespace fathom::lab::engine_sweeps {

inline engine::EngineConfig with_drafts(engine::EngineConfig config) {
  config.draft_tokens = 7;
  config.draft_method = engine::EngineConfig::DraftMethod::suffix;
  config.draft_budget = true;
  return config;
}

}  // namespace fathom::lab::engine_sweeps
