// Memory and router imbalance of an engine's run, as every `fathom bench` of an engine reports them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/generator.h"

namespace fathom::cli {

// {"memory_bytes": {"weights", "kv_cache", "workspace"}, "router_imbalance"}; the latter is null where nobody
// counts.
nlohmann::json engine_report_json(const engine::GeneratorStats& stats);
// A line for each of the two that is known.
std::string engine_report_text(const engine::GeneratorStats& stats);

}  // namespace fathom::cli
