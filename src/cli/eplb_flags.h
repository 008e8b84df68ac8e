// --eplb-config: where experts go while an engine serves, with vLLM's keys.
#pragma once

#include <string>

#include "core/result.h"
#include "engine/config.h"

namespace fathom::cli {

// Sets `eplb` from JSON such as {"window_size": 1000, "step_interval": 3000}; what is not named stays. The
// error names the key, what is wrong with it and what it may be.
Status set_eplb_config(const std::string& text, engine::EngineConfig::Eplb& eplb);

}  // namespace fathom::cli
