// --speculative-config: drafts, with vLLM's keys.
#pragma once

#include <string>

#include "core/result.h"
#include "engine/config.h"

namespace fathom::cli {

// Sets the drafts of `config` from JSON such as {"method": "suffix", "num_speculative_tokens": 7}. The error
// names the key, what is wrong with it and what it may be.
Status set_speculative_config(const std::string& text, engine::EngineConfig& config);

}  // namespace fathom::cli
