// Two cores, an engine on each. Both answer whole requests; or one computes prompts and the other writes
// answers. What does a long prompt do to the tokens of others, and what does the division cost?
#include <memory>
#include <stdexcept>

#include "engine/engine.h"
#include "engine/replica_router.h"
#include "experiments/engine_session.h"
#include "http/server.h"
#include "serve/api.h"
#include "serve/request_context.h"
#include "serve/structured_output.h"
#include "serve/worker_route.h"

namespace fathom::lab::disaggregated_cpu {

using namespace engine_session;

template <class T>
T started(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

engine::EngineConfig replica(int64_t step_tokens) {
  engine::EngineConfig config;
  config.threads     = 1;
  config.max_context = 1024;
  config.kv_tokens   = 16384;
  config.step_tokens = step_tokens;
  return config;
}

Start mixed(int64_t step_tokens) {
  return [=] {
    std::vector<std::unique_ptr<engine::Generator>> replicas;
    for (int r = 0; r < 2; ++r) replicas.push_back(engine_of(replica(step_tokens))());
    return std::make_unique<engine::ReplicaRouter>(std::move(replicas), engine::ReplicaRouter::Options{});
  };
}

// `fathom serve --role prefill` and `--role decode --transfer shm` in one process: requests for prompts go
// over HTTP, blocks of keys and values through shared memory.
class PrefillAndDecode final : public engine::Generator {
 public:
  explicit PrefillAndDecode(const engine::EngineConfig& config)
      : constraints_(*model().tokenizer, model().harmony, model().eos_ids, model().config.vocab_size),
        prefill_engine_(started(engine::Engine::start(model(), config))),
        decode_engine_(started(engine::Engine::start(model(), config))),
        prefill_(started(serve::Worker::start(*prefill_engine_, constraints_,
                                              {.role = serve::WorkerRole::prefill, .offload = {}}))),
        api_({.model_names     = {"tiny"},
              .api_key         = {},
              .allowed_origins = {},
              .version         = {},
              .page            = {},
              .openapi         = {}}),
        server_(started(http::Server::listen({}, api_.handler()))) {
    api_.ready({.generator  = *prefill_engine_,
                .checkpoint = model(),
                .constraint = {},
                .worker     = [this](const serve::RequestContext& context) { prefill_->answer(context); }});
    decode_ = started(serve::Worker::start(
        *decode_engine_, constraints_,
        {.role    = serve::WorkerRole::decode,
         .offload = {
             .peers = {{.port = server_->port()}}, .api_key = {}, .layout = {}, .shared_memory = true}}));
  }

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    return decode_->generator().submit(std::move(request), std::move(listener));
  }
  void cancel(engine::RequestId id, engine::FinishReason reason) override {
    decode_->generator().cancel(id, reason);
  }
  engine::GeneratorStats stats() const override {
    engine::GeneratorStats stats          = decode_->generator().stats();
    const engine::GeneratorStats prefills = prefill_engine_->stats();
    stats.steps += prefills.steps;
    stats.step_rows += prefills.step_rows;
    stats.memory.weights += prefills.memory.weights;
    stats.memory.kv_cache += prefills.memory.kv_cache;
    stats.memory.workspace += prefills.memory.workspace;
    return stats;
  }
  int64_t max_context() const override { return decode_->generator().max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override { return decode_->generator().drain(timeout); }

 private:
  static const model::Checkpoint& model() { return bundled().checkpoint; }

  // The last is destroyed first: it uses those before it.
  serve::OutputConstraints constraints_;
  std::unique_ptr<engine::Engine> prefill_engine_, decode_engine_;
  std::unique_ptr<serve::Worker> prefill_;
  serve::Api api_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<serve::Worker> decode_;
};

Start disaggregated(int64_t step_tokens) {
  return [=] { return std::make_unique<PrefillAndDecode>(replica(step_tokens)); };
}

constexpr int64_t kWhole = 512, kPieces = 64;  // rows of a step at most: more, and fewer, than a prompt has

// Prompts of about 330 tokens without a common prefix, answers of 64. Arrivals are an open loop at half of
// the saturation rate of the mixed replicas.
Workload workload(int64_t shots, int64_t requests) {
  const Workload together = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < static_cast<uint64_t>(requests); ++i)
      asked.push_back({.prompt     = prompt_of({.seed = seed, .index = i, .shots = shots, .about = seed + i}),
                       .max_tokens = 64,
                       .exactly    = true});
    return asked;
  };
  static const double rps = 0.5 * saturation_rps(mixed(kWhole), together);
  return in_open_loop(together, rps);
}

auto starts(const Start& start) {
  return [start](const Point& at) {
    return replay_on(start, workload(at["shots"], at["requests"]), [](const Seen& seen, Metrics& metrics) {
      metrics["moved_share"] = {
          static_cast<double>(seen.stats.received_hit_tokens) / static_cast<double>(seen.stats.prompt_tokens),
          "higher"};
    });
  };
}

const Experiment<Session> experiment{
    .question =
        "One engine a core: do two that answer whole requests, or one for prompts and one for answers, write "
        "tokens more evenly, and what does the first token cost?",
    .axes  = {{"shots", {10}}, {"requests", {32}}},
    .quick = {{"requests", {12}}},
    .variants =
        {
            {.id         = "mixed",
             .start      = starts(mixed(kWhole)),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing"},
             .idea       = "two replicas; a prompt is computed in one step, beside the decodes"},
            {.id         = "mixed_pieces",
             .start      = starts(mixed(kPieces)),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "dynamic_routing",
                            "chunked_prefill"},
             .idea       = "the same, with chunks of at most 64 rows",
             .prediction = predict::ratio(4)},
            {.id         = "disaggregated",
             .start      = starts(disaggregated(kWhole)),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "prefill_decode_pools"},
             .idea       = "one computes prompts and hands keys and values to the other, which writes",
             .prediction = predict::ratio_at_least(6)},
        },
    .catalog = {"serving-002"},
    .goal    = "itl_p99_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::disaggregated_cpu
