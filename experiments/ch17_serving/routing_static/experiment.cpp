// Two replicas, each with half of the machine and memory for half of the prefixes. Does it matter which of
// them gets a request?
#include <memory>

#include "core/rng.h"
#include "engine/replica_router.h"
#include "experiments/engine_session.h"

namespace fathom::lab::routing_static {

using namespace engine_session;
using engine::ReplicaRouter;

constexpr uint64_t kPrefixes = 8;  // of about 250 tokens

engine::EngineConfig replica() {
  engine::EngineConfig config;
  config.threads         = 1;
  config.max_context     = 512;
  config.max_sequences   = 4;
  config.kv_tokens       = 2560;
  config.chunked_prefill = false;
  return config;
}

Start routed(const ReplicaRouter::Options& options) {
  return [options] {
    std::vector<std::unique_ptr<engine::Generator>> replicas;
    for (int r = 0; r < 2; ++r) replicas.push_back(engine_of(replica())());
    return std::make_unique<ReplicaRouter>(std::move(replicas), options);
  };
}

constexpr ReplicaRouter::Options kInTurn{.policy = ReplicaRouter::Policy::round_robin};
constexpr ReplicaRouter::Options kByCost{.policy = ReplicaRouter::Policy::least_cost, .cache_tokens = 2048};
// The same, without prefixes.
constexpr ReplicaRouter::Options kByWork{.policy = ReplicaRouter::Policy::least_cost, .cache_tokens = 0};

// One answer in four is long, and prefixes are random. Arrivals are an open loop, at half of the saturation
// rate of two replicas with round robin.
Workload workload(int64_t shots, int64_t requests) {
  const Workload together = [=](uint64_t seed) {
    std::vector<int64_t> about(static_cast<size_t>(requests));
    fill_integers(about.data(), requests, seed, 0, kPrefixes);
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < about.size(); ++i)
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

auto starts(const ReplicaRouter::Options& options) {
  return [options](const Point& at) {
    return replay_on(routed(options), workload(at["shots"], at["requests"]),
                     [](const Seen& seen, Metrics& metrics) {
                       metrics["hit_rate"]      = {static_cast<double>(seen.stats.prefix_hit_tokens) /
                                                       static_cast<double>(seen.stats.prompt_tokens),
                                                   "higher"};
                       metrics["submit_ns"]     = {1e9 * seen.submit_s, "lower"};
                       metrics["computed_rows"] = {static_cast<double>(seen.stats.step_rows), "lower"};
                     });
  };
}

const Experiment<Session> experiment{
    .question =
        "Two replicas with memory for half of eight prefixes each: how much does a router gain that sends a "
        "request where it costs least, over round robin?",
    .axes  = {{"shots", {8}}, {"requests", {64}}},
    .quick = {{"requests", {16}}},
    .variants =
        {
            {.id         = "in_turn",
             .start      = starts(kInTurn),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching"},
             .idea       = "round robin, whatever the replicas' loads"},
            {.id         = "by_work",
             .start      = starts(kByWork),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "to the replica with fewer rows to compute, by an estimate",
             .prediction = predict::ratio(1.2)},
            {.id         = "by_cost",
             .start      = starts(kByCost),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "the same, less the prefix that is probably in its cache",
             .prediction = predict::ratio_at_least(1.8)},
        },
    .catalog = {"routing-003"},
    .goal    = "ttft_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::routing_static
