// A request's keys and values need memory. If memory for its longest possible answer is reserved, how much of
// it stays unused, and how many requests wait for it?
#include "experiments/engine_session.h"

namespace fathom::lab::kv_cache_management {

using namespace engine_session;

engine::EngineConfig dense() {
  auto config                = engine::EngineConfig::baseline();
  config.continuous_batching = true;
  config.max_context         = 512;
  config.kv_tokens           = 8 * 512;
  return config;
}

engine::EngineConfig paged(int64_t page_size) {
  auto config      = dense();
  config.paged_kv  = true;
  config.page_size = page_size;
  return config;
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(
        engine_of(config), short_answers(at["requests"]), [config](const Seen& seen, Metrics& metrics) {
          const auto page                  = static_cast<double>(config.page_size);
          metrics["most_requests_at_once"] = {static_cast<double>(seen.peak_running), "higher"};
          metrics["kv_used_share"]         = {seen.slots_used / (seen.pages * page), "higher"};
          metrics["kv_share_of_pool"]      = {
                   static_cast<double>(seen.peak_pages) / static_cast<double>(seen.stats.pages), "lower"};
        });
  };
}

const Experiment<Session> experiment{
    .question =
        "In memory for 8 contexts of 512 tokens, how many requests fit when each takes pages as it needs "
        "them, and how much time does that save?",
    .axes  = {{"requests", {64}}},
    .quick = {{"requests", {24}}},
    .variants =
        {
            {.id         = "dense",
             .start      = starts(dense()),
             .techniques = {"continuous_batching"},
             .idea       = "memory for a whole context is reserved for each request"},
            {.id         = "paged",
             .start      = starts(paged(16)),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "pages of 16 tokens on demand; pages that a window has passed are freed",
             .prediction = predict::ratio(1.2)},
            {.id         = "paged_4",
             .start      = starts(paged(4)),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "pages of 4 tokens: less unused memory, longer block tables",
             .prediction = predict::ratio(1.15)},
        },
    .catalog = {"kv-002", "kv-004", "kv-005", "kv-006"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::kv_cache_management
