#include "cli/engine_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

namespace fathom::cli {
namespace {

// None before the first token.
std::optional<double> balancedness_of(const engine::EplbStats& eplb) {
  if (eplb.max_rank_tokens == 0) return {};
  return eplb.mean_rank_tokens / static_cast<double>(eplb.max_rank_tokens);
}

}  // namespace

nlohmann::json engine_report_json(const engine::GeneratorStats& stats) {
  nlohmann::json out = {{"memory_bytes",
                         {{"weights", stats.memory.weights},
                          {"kv_cache", stats.memory.kv_cache},
                          {"workspace", stats.memory.workspace}}},
                        {"router_imbalance", nullptr},
                        {"rank_imbalance", nullptr},
                        {"eplb", nullptr}};
  if (stats.router_imbalance) out["router_imbalance"] = *stats.router_imbalance;
  if (stats.rank_imbalance) out["rank_imbalance"] = *stats.rank_imbalance;
  if (const auto& eplb = stats.eplb) {
    out["eplb"] = {{"plans_taken", eplb->plans_taken},
                   {"plans_refused", eplb->plans_refused},
                   {"experts_moved", eplb->experts_moved},
                   {"seconds", eplb->seconds},
                   {"balancedness", nullptr}};
    if (const auto balancedness = balancedness_of(*eplb)) out["eplb"]["balancedness"] = *balancedness;
  }
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
  if (stats.rank_imbalance)
    text += fmt::format("Rank imbalance: {:.3f} (most loaded rank over the mean, worst layer)\n",
                        *stats.rank_imbalance);
  if (const auto& eplb = stats.eplb) {
    text += fmt::format("EPLB: {} plans taken, {} refused, {} experts moved, {:.1f} ms", eplb->plans_taken,
                        eplb->plans_refused, eplb->experts_moved, eplb->seconds * 1e3);
    if (const auto all = balancedness_of(*eplb)) text += fmt::format("; balancedness {:.3f}", *all);
    if (eplb->balancedness) text += fmt::format(", {:.3f} before the latest plans", *eplb->balancedness);
    text += "\n";
  }
  return text;
}

}  // namespace fathom::cli
