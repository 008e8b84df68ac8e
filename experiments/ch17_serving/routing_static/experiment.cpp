// Two engines, each with half of the machine and room for half of the prefixes. Does it matter who gets a
// request?
#include "core/rng.h"
#include "engine/router.h"
#include "experiments/engine_session.h"

namespace fathom::lab::routing_static {

using namespace engine_session;
using engine::Router;

constexpr int64_t kRequests = 64;
constexpr uint64_t kAbouts  = 8;  // beginnings of about 250 tokens

engine::EngineConfig replica() {
  engine::EngineConfig config;
  config.threads         = 1;
  config.max_context     = 512;
  config.max_sequences   = 4;
  config.kv_tokens       = 2560;
  config.chunked_prefill = false;
  return config;
}

Start routed(const Router::Options& options) {
  return [options] {
    std::vector<std::unique_ptr<engine::Generator>> replicas;
    for (int r = 0; r < 2; ++r) replicas.push_back(engine_of(replica())());
    return std::make_unique<Router>(std::move(replicas), options);
  };
}

constexpr Router::Options kInTurn{.policy = Router::Policy::round_robin};
constexpr Router::Options kByCost{.policy = Router::Policy::least_cost, .cache_tokens = 2048};
// The same, blind for prefixes.
constexpr Router::Options kByWork{.policy = Router::Policy::least_cost, .cache_tokens = 0};

// One answer in four is long, and the beginnings come at random, in an open loop at half of what two engines
// can take in turn.
Workload workload(int64_t shots) {
  const Workload together = [=](uint64_t seed) {
    std::vector<int64_t> about(kRequests);
    fill_integers(about.data(), kRequests, seed, 0, kAbouts);
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < kRequests; ++i)
      asked.push_back(
          {.prompt = prompt_of(
               {.seed = seed, .index = i, .shots = shots, .about = seed + static_cast<uint64_t>(about[i])}),
           .max_tokens = (seed + i * 7) % 4 == 0 ? 96 : 12,
           .exactly    = true});
    return asked;
  };
  static const double rps = 0.5 * saturation_rps(routed(kInTurn), together);
  return in_open_loop(together, rps);
}

auto starts(const Router::Options& options) {
  return [options](const Point& at) {
    return replay_on(routed(options), workload(at["shots"]), [](const Seen& seen, Metrics& metrics) {
      metrics["hit_rate"] = {
          static_cast<double>(seen.stats.prefix_hit_tokens) / static_cast<double>(seen.stats.prompt_tokens),
          "higher"};
      metrics["submit_ns"]     = {1e9 * seen.submit_s, "lower"};
      metrics["computed_rows"] = {static_cast<double>(seen.stats.step_rows), "lower"};
    });
  };
}

const SessionExperiment experiment{
    .question =
        "Two engines with room for half of eight prefixes each: what is gained when a request goes where it "
        "costs least, and not to each in turn?",
    .axes = {{"shots", {8}}},
    .variants =
        {
            {.id         = "in_turn",
             .start      = starts(kInTurn),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching"},
             .idea       = "round robin, whatever each has to do"},
            {.id         = "by_work",
             .start      = starts(kByWork),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "to the one with fewer rows to compute, as far as that is known",
             .prediction = predict::ratio(1.2)},
            {.id         = "by_cost",
             .start      = starts(kByCost),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "the same, less what is believed to lie in its cache",
             .prediction = predict::ratio_at_least(1.8)},
        },
    .catalog = {"routing-003"},
    .goal    = "ttft_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::routing_static
