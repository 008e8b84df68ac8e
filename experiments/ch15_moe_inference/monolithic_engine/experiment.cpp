// This chapter adds four features to a plain engine. How much does each gain alone, and how much do they gain
// together, in the same memory?
#include "experiments/engine_session.h"

namespace fathom::lab::monolithic_engine {

using namespace engine_session;

engine::EngineConfig plain() {
  auto config        = engine::EngineConfig::baseline();
  config.max_context = 512;
  config.kv_tokens   = 8 * 512;  // eight whole contexts
  return config;
}

engine::EngineConfig with(std::initializer_list<bool engine::EngineConfig::*> features) {
  auto config = plain();
  for (const auto feature : features) config.*feature = true;
  return config;
}

// Half of the questions follow the same eight examples. They arrive at four times the rate that `plain` can
// serve, so that throughput determines the time. They do not arrive all in one step, because requests that
// start together cannot share a prefix.
Workload workload(int64_t count) {
  const Workload questions = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (int64_t i = 0; i < count; ++i)
      asked.push_back(
          {.prompt = prompt_of(
               {.seed = seed, .index = static_cast<uint64_t>(i), .shots = i % 2 == 0 ? 8 : 0, .about = seed}),
           .max_tokens = 128});
    return asked;
  };
  static const double rps = 4 * saturation_rps(engine_of(plain()), questions);
  return in_open_loop(questions, rps);
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), workload(at["requests"]), [](const Seen& seen, Metrics& metrics) {
      metrics["most_requests_at_once"] = {static_cast<double>(seen.peak_running), "higher"};
      metrics["computed_rows"]         = {static_cast<double>(seen.stats.step_rows), "lower"};
    });
  };
}

using Config = engine::EngineConfig;

const Experiment<Session> experiment{
    .question =
        "How much do continuous batching, paged memory, prefix caching and asynchronous scheduling each gain "
        "over a plain engine, and how much together?",
    .axes  = {{"requests", {40}}},
    .quick = {{"requests", {12}}},
    .variants =
        {
            {.id         = "plain",
             .start      = starts(plain()),
             .techniques = {"batching"},
             .idea =
                 "static batches of 8, memory for a whole context each, steps planned one after the other"},
            {.id         = "continuous",
             .start      = starts(with({&Config::continuous_batching})),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "requests join and leave at every step",
             .prediction = predict::ratio(1.15)},
            {.id         = "paged",
             .start      = starts(with({&Config::paged_kv})),
             .techniques = {"batching", "paged_kv"},
             .idea       = "pages on demand; alone it frees memory that static batches cannot use",
             .prediction = predict::ratio(1)},
            {.id         = "prefixes",
             .start      = starts(with({&Config::prefix_cache})),
             .techniques = {"batching", "prefix_caching"},
             .idea       = "equal prefixes are computed once",
             .prediction = predict::ratio(1.6)},
            {.id         = "ahead",
             .start      = starts(with({&Config::async_scheduling})),
             .techniques = {"batching", "latency_hiding"},
             .idea       = "the next step is planned while this one runs",
             .prediction = predict::ratio(1.02)},
            {.id    = "all",
             .start = starts(with({&Config::continuous_batching, &Config::paged_kv, &Config::prefix_cache,
                                   &Config::async_scheduling})),
             .techniques = {"batching", "continuous_batching", "paged_kv", "prefix_caching",
                            "latency_hiding"},
             .idea       = "all four",
             .prediction = predict::ratio_at_least(2)},
        },
    .catalog = {"serving-003", "serving-015", "serving-017", "report-007", "report-008", "harness-009"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::monolithic_engine
