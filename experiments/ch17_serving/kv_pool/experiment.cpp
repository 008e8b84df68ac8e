// Two cores, an engine on each, and prompts with long common beginnings. Each engine has the prefix cache
// that it has computed; or both share a pool of blocks; or the router sends a prompt to the engine that has
// its beginning.
#include <memory>
#include <stdexcept>

#include "core/rng.h"
#include "engine/engine.h"
#include "engine/replica_router.h"
#include "experiments/engine_session.h"
#include "http/server.h"
#include "serve/kv_connector.h"
#include "serve/kv_pool.h"
#include "serve/kv_pool_api.h"

namespace fathom::lab::kv_pool {

using namespace engine_session;
using engine::ReplicaRouter;

constexpr uint64_t kPrefixes = 16;

// With room for about ten of the prefixes, of 440 tokens each, beside what runs.
engine::EngineConfig replica() {
  engine::EngineConfig config;
  config.threads       = 1;
  config.max_context   = 1024;
  config.max_sequences = 4;
  config.kv_tokens     = 6144;
  return config;
}

template <class T>
T started(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

// `fathom kv-pool`, on a thread of this process: blocks go over HTTP.
struct Pool {
  serve::KvPool blocks{int64_t{1} << 30};
  serve::KvPoolApi api{blocks, ""};
  std::unique_ptr<http::Server> server = started(http::Server::listen(options(), api.handler()));

  static http::ServerOptions options() {
    http::ServerOptions options = serve::KvPoolApi::server_options();
    options.io_threads          = 1;
    return options;
  }
  int64_t moved_bytes() const { return blocks.stats().stored_bytes + blocks.stats().loaded_bytes; }
};

// `fathom serve --kv-pool`.
class PooledReplica final : public engine::Generator {
 public:
  explicit PooledReplica(std::shared_ptr<const Pool> pool)
      : pool_(std::move(pool)),
        engine_(started(engine::Engine::start(bundled().checkpoint, replica()))),
        connector_(started(serve::KvConnector::start(
            *engine_, *engine_, {.pool = {.port = pool_->server->port()}, .api_key = {}}))) {}

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    return connector_->submit(std::move(request), std::move(listener));
  }
  void cancel(engine::RequestId id, engine::FinishReason reason) override { connector_->cancel(id, reason); }
  engine::GeneratorStats stats() const override { return connector_->stats(); }
  int64_t max_context() const override { return connector_->max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override { return connector_->drain(timeout); }

 private:
  // The last is destroyed first: it uses those before it.
  std::shared_ptr<const Pool> pool_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<serve::KvConnector> connector_;
};

constexpr ReplicaRouter::Options kInTurn{.policy = ReplicaRouter::Policy::round_robin};
constexpr ReplicaRouter::Options kByPrefix{.policy = ReplicaRouter::Policy::least_cost, .cache_tokens = 4096};

// `pool`: null where each replica has a cache of its own only.
Start routed(const ReplicaRouter::Options& options, std::shared_ptr<const Pool> pool) {
  return [=] {
    std::vector<std::unique_ptr<engine::Generator>> replicas;
    for (int r = 0; r < 2; ++r)
      replicas.push_back(pool ? std::make_unique<PooledReplica>(pool) : engine_of(replica())());
    return std::make_unique<ReplicaRouter>(std::move(replicas), options);
  };
}

// Questions behind one of 16 lists of examples each, drawn at random; answers of 16 tokens. Arrivals are an
// open loop, at half of the saturation rate of two replicas with caches of their own.
Workload workload(int64_t shots, int64_t requests) {
  const Workload together = [=](uint64_t seed) {
    std::vector<int64_t> about(static_cast<size_t>(requests));
    fill_integers(about.data(), requests, seed, 0, kPrefixes);
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < about.size(); ++i)
      asked.push_back({.prompt     = prompt_of({.seed  = seed,
                                                .index = i,
                                                .shots = shots,
                                                .about = seed + kPrefixes + static_cast<uint64_t>(about[i])}),
                       .max_tokens = 16,
                       .exactly    = true});
    return asked;
  };
  static const double rps = 0.5 * saturation_rps(routed(kInTurn, nullptr), together);
  return in_open_loop(together, rps);
}

auto starts(const ReplicaRouter::Options& options, bool pooled) {
  return [=](const Point& at) {
    const auto pool = pooled ? std::make_shared<const Pool>() : nullptr;  // empty, for each replay
    return replay_on(
        routed(options, pool), workload(at["shots"], at["requests"]),
        [pool](const Seen& seen, Metrics& metrics) {
          const auto& stats = seen.stats;
          double ttft_s     = 0;
          for (const load::RequestRecord& request : seen.requests)
            ttft_s += request.content_s.front() - request.scheduled_s;
          metrics["ttft_mean_ns"] = {1e9 * ttft_s / static_cast<double>(seen.requests.size()), "lower"};
          metrics["computed_prompt_tokens"] = {
              static_cast<double>(stats.prompt_tokens - stats.prefix_hit_tokens), "lower"};
          metrics["hit_rate"] = {
              static_cast<double>(stats.prefix_hit_tokens) / static_cast<double>(stats.prompt_tokens),
              "higher"};
          metrics["moved_bytes"] = {pool ? static_cast<double>(pool->moved_bytes()) : 0, "lower"};
        });
  };
}

const Experiment<Session> experiment{
    .question =
        "Two replicas, prompts with long common beginnings: what does a pool of keys and values that both "
        "share save over a prefix cache in each, and does a router that knows prefixes save it too?",
    .axes  = {{"shots", {16}}, {"requests", {48}}},
    .quick = {{"requests", {24}}},
    .variants =
        {
            {.id         = "own_caches",
             .start      = starts(kInTurn, false),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching"},
             .idea       = "round robin; each replica finds the prefixes that it has computed"},
            {.id         = "pool",
             .start      = starts(kInTurn, true),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "kv_pool"},
             .idea       = "round robin; what one has computed the other takes from a pool",
             .prediction = predict::ratio_at_least(1.5)},
            {.id         = "routed",
             .start      = starts(kByPrefix, false),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "no pool: a prompt goes to the replica that probably has its prefix",
             .prediction = predict::ratio_at_least(1.5)},
        },
    .catalog = {"kv-009"},
    .goal    = "ttft_mean_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::kv_pool
