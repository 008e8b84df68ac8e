// A mean can look good while every tenth user waits. What do percentiles and a latency limit show of three
// engines under the same load, and what helps under overload?
#include "experiments/engine_session.h"

namespace fathom::lab::latency_percentiles {

using namespace engine_session;

engine::EngineConfig plain() {
  auto config        = engine::EngineConfig::baseline();
  config.max_context = 512;
  config.kv_tokens   = 64 * 512;
  return config;
}

engine::EngineConfig continuous() {
  auto config                = plain();
  config.continuous_batching = config.paged_kv = config.prefix_cache = config.async_scheduling = true;
  return config;
}

// Admission control: as many running as are answered in time, and a short queue.
engine::EngineConfig bounded() {
  auto config                = continuous();
  config.max_sequences       = 12;
  config.max_queued_requests = 4;
  return config;
}

// This machine's capacity: requests a second of `continuous` at saturation, and the time of a request that
// runs alone.
struct Scale {
  double rps, alone_s;
};
const Scale& scale() {
  static const Scale scale = [] {
    const double rps            = saturation_rps(engine_of(continuous()), short_answers(64));
    auto one_at_a_time          = continuous();
    one_at_a_time.max_sequences = 1;
    return Scale{rps, 1 / saturation_rps(engine_of(one_at_a_time), short_answers(16))};
  }();
  return scale;
}

Workload workload(int64_t requests, int64_t load_percent) {
  return in_open_loop(short_answers(requests), scale().rps * static_cast<double>(load_percent) / 100);
}

// A good request is answered within ten times the time it takes alone. If none is, half a request counts, so
// that there is a time to compare.
void report(const Seen& seen, Metrics& metrics) {
  const double limit_s = 10 * scale().alone_s;
  const auto within    = load::summarize(seen.requests, seen.summary.duration_s, {.e2el_s = limit_s});
  const double good    = *within.request_goodput * within.duration_s;
  metrics["ns_per_good_request"] = {1e9 * within.duration_s / std::max(good, 0.5), "lower"};
  metrics["slo_attainment"]      = {good / static_cast<double>(seen.asked.size()), "higher"};
  metrics["turned_away"]         = {static_cast<double>(within.failed), "lower"};
  metrics["e2e_limit_ns"]        = {1e9 * limit_s, "lower"};
  metrics["e2e_mean_ns"]         = {1e9 * *within.e2el.mean(), "lower"};
  metrics["offered_rps"] = {static_cast<double>(seen.asked.size()) / seen.asked.back().at_s, "higher"};
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), workload(at["requests"], at["load_percent"]), report);
  };
}

const Experiment<Session> experiment{
    .question =
        "Of requests that arrive at random, how many are answered within ten times their time alone, at "
        "150 % and at 70 % of the engine's saturation rate?",
    .axes  = {{"load_percent", {150, 70}}, {"requests", {192}}},
    .quick = {{"requests", {48}}},
    .variants =
        {
            {.id         = "plain",
             .start      = starts(plain()),
             .techniques = {"batching", "latency_percentiles"},
             .idea       = "static batches of 8, first come, first served"},
            {.id         = "continuous",
             .start      = starts(continuous()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "latency_hiding",
                            "latency_percentiles"},
             .idea       = "the engine of chapter 15; every request is admitted",
             .prediction = predict::ratio_at_least(1.5)},
            {.id         = "bounded",
             .start      = starts(bounded()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "latency_hiding",
                            "latency_percentiles"},
             .idea       = "12 running, 4 waiting; further requests are refused at once",
             .prediction = predict::ratio_at_least(2),
             .may_refuse = true},
        },
    .catalog = {"serving-004", "serving-005", "harness-010", "report-008"},
    .goal    = "ns_per_good_request",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::latency_percentiles
