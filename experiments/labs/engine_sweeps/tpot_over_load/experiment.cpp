// How long does a token take as the load grows beyond what the engine can serve?
#include "experiments/engine_session.h"
#include "experiments/labs/engine_sweeps/engines.h"

namespace fathom::lab::tpot_over_load {

using namespace engine_session;

engine::EngineConfig full() {
  engine::EngineConfig config;
  config.max_context   = 384;
  config.max_sequences = 32;
  config.kv_tokens     = 32 * 384;
  return config;
}

// Poisson arrivals at a multiple of the rate at which the engine with its defaults answers requests that all
// come at once. The same arrivals for all variants.
Workload at_load(double load, int64_t requests) {
  const Workload questions       = short_answers(requests);
  static const double saturation = saturation_rps(engine_of(full()), short_answers(48));
  return in_open_loop(questions, load * saturation);
}

auto starts(const engine::EngineConfig& config) {
  return
      [=](const Point& at) { return replay_on(engine_of(config), at_load(at.real("load"), at["requests"])); };
}

const Experiment<Session> experiment{
    .question =
        "Poisson arrivals at 0.5 to 1.5 of saturation: what are time per output token and throughput with "
        "static "
        "batches, with continuous batching, and with drafts too?",
    .axes  = {{"load", {1.0, 0.5, 0.75, 1.25, 1.5}}, {"requests", {48}}},
    .quick = {{"requests", {12}}},
    .variants =
        {
            {.id         = "baseline",
             .start      = starts(full().plain()),
             .techniques = {"batching"},
             .idea       = "static batches of at most eight, a whole context of KV cache for each request"},
            {.id         = "engine",
             .start      = starts(full()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding"},
             .idea       = "all features but drafts",
             .prediction = predict::ratio(0.7)},
            {.id         = "engine_drafts",
             .start      = starts(engine_sweeps::with_drafts(full())),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding", "speculative_decoding", "suffix_decoding", "draft_budget"},
             .idea       = "and drafts of chosen length",
             .prediction = predict::ratio(0.7)},
        },
    .catalog = {"analysis-007", "serving-016"},
    .goal    = "tpot_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::tpot_over_load
