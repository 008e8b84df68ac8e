#include "cli/engine_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fathom::cli {

nlohmann::json engine_report_json(const engine::GeneratorStats& stats) {
  nlohmann::json out = {{"memory_bytes",
                         {{"weights", stats.memory.weights},
                          {"kv_cache", stats.memory.kv_cache},
                          {"workspace", stats.memory.workspace}}},
                        {"router_imbalance", nullptr}};
  if (stats.router_imbalance) out["router_imbalance"] = *stats.router_imbalance;
  return out;
}

std::string engine_report_text(const engine::GeneratorStats& stats) {
  const auto megabytes            = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  const engine::MemoryUse& memory = stats.memory;
  std::string text;
  if (memory.total() > 0)
    text += fmt::format("Memory: {:.1f} MB (weights {:.1f}, KV cache {:.1f}, workspace {:.1f})\n",
                        megabytes(memory.total()), megabytes(memory.weights), megabytes(memory.kv_cache),
                        megabytes(memory.workspace));
  if (stats.router_imbalance)
    text += fmt::format("Router imbalance: {:.3f} (most loaded expert over the mean, worst layer)\n",
                        *stats.router_imbalance);
  return text;
}

}  // namespace fathom::cli
