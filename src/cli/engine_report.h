// Memory and balance of an engine's run, as every `fathom bench` of an engine reports them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/generator.h"

namespace fathom::cli {

// {"memory_bytes": {"weights", "kv_cache", "workspace"}, "router_imbalance", "rank_imbalance", "eplb":
// {"plans_taken", "plans_refused", "experts_moved", "seconds", "balancedness"}}; null where nobody counts,
// without expert parallelism, and without EPLB. The balancedness is that of the whole run.
nlohmann::json engine_report_json(const engine::GeneratorStats& stats);
// A line for each that is known.
std::string engine_report_text(const engine::GeneratorStats& stats);

}  // namespace fathom::cli
