// GET /metrics (Prometheus text) and /stats (the same engine counters as JSON).
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "serve/routes.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void metrics(const RequestContext& context) {
  if (!context.model->metrics)
    return context.refuse({.status = 404, .type = "NotFoundError", .message = "this server counts nothing"});
  const auto respond = [exchange = context.exchange, model = context.model](const GpuMonitor::Scrape* gpus) {
    exchange->respond(200, {{"Content-Type", std::string(ServeMetrics::kContentType)}},
                      model->metrics->text(model->generator.stats(), gpus));
  };
  if (!context.model->gpus) return respond(nullptr);
  context.model->gpus->scrape([respond](const GpuMonitor::Scrape& gpus) { respond(&gpus); });
}

void stats(const RequestContext& context) {
  const engine::GeneratorStats stats = context.model->generator.stats();
  const auto uptime                  = std::chrono::system_clock::now() - context.server_started;
  Json finished                      = Json::object();
  for (int reason = 0; reason < engine::kFinishReasons; ++reason)
    finished[std::string(name_of(static_cast<engine::FinishReason>(reason)))] = stats.finished[reason];
  Json body = {{"model", context.options.model_names.front()},
               {"uptime_s", std::chrono::duration<double>(uptime).count()},
               {"max_context", context.model->generator.max_context()},
               {"running", stats.running},
               {"waiting", stats.waiting},
               {"waiting_tokens", stats.waiting_tokens},
               {"pages", stats.pages},
               {"pages_in_use", stats.pages_in_use},
               {"prompt_tokens", stats.prompt_tokens},
               {"generated_tokens", stats.generated_tokens},
               {"prefix_queried_tokens", stats.prefix_queried_tokens},
               {"prefix_hit_tokens", stats.prefix_hit_tokens},
               {"preemptions", stats.preemptions},
               {"admission_holds", stats.admission_holds},
               {"held_steps", stats.held_steps},
               {"forgotten_pages", stats.forgotten_pages},
               {"steps", stats.steps},
               {"stalled_s", stats.stalled_s},
               {"step_rows", stats.step_rows},
               {"drafted_tokens", stats.drafted_tokens},
               {"accepted_tokens", stats.accepted_tokens},
               {"schedule_s", stats.schedule_s},
               {"forward_s", stats.forward_s},
               {"sample_s", stats.sample_s},
               {"finished", std::move(finished)},
               {"memory_bytes",
                {{"weights", stats.memory.weights},
                 {"kv_cache", stats.memory.kv_cache},
                 {"workspace", stats.memory.workspace}}},
               {"weight_version", stats.weight_version},
               {"weight_updates", stats.weight_updates},
               {"router_imbalance", nullptr}};
  if (stats.router_imbalance) body["router_imbalance"] = *stats.router_imbalance;
  if (const ServeMetrics* counted = context.model->metrics)
    if (const auto ttft = counted->median_time_to_first_token_s()) body["ttft_p50_s"] = *ttft;
  context.respond(body);
}

}  // namespace fathom::serve
