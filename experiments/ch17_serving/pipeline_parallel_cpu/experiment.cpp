// Two ranks can have half of every layer or half of the layers. Ranks of the first kind wait for each other
// twice a layer; those of the second wait for the pipeline to fill. Which is faster on one host?
#include "experiments/engine_session.h"

namespace fathom::lab::pipeline_parallel_cpu {

using namespace engine_session;

engine::EngineConfig one_rank() {
  engine::EngineConfig config;
  config.max_context   = 2048;
  config.max_sequences = 32;
  config.kv_tokens     = 32 * 2048;
  config.prefix_cache  = false;  // no two prompts share a prefix
  return config;
}

engine::EngineConfig two_ranks() {
  auto config            = one_rank();
  config.tensor_parallel = 2;
  return config;
}

engine::EngineConfig two_stages() {
  auto config              = one_rank();
  config.pipeline_parallel = 2;
  return config;
}

// Short prompts with answers of 64 tokens, or prompts of some 900 tokens (30 shots) with answers of 4.
Workload workload(int64_t sequences, bool long_prompts) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (int64_t i = 0; i < sequences; ++i) {
      const auto index = static_cast<uint64_t>(i);
      asked.push_back(
          {.prompt = prompt_of(
               {.seed = seed, .index = index, .shots = long_prompts ? 30 : 0, .about = seed + index}),
           .max_tokens = long_prompts ? 4 : 64,
           .exactly    = true});
    }
    return asked;
  };
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), workload(at["sequences"], at["long_prompts"] != 0));
  };
}

const Experiment<Session> experiment{
    .question =
        "Two cores compute every layer together, as two ranks of half a layer, or as two stages of half the "
        "layers: which answers sooner, for 1 to 32 sequences at once and for long prompts?",
    .axes     = {{"sequences", {1, 8, 32}}, {"long_prompts", {0, 1}}},
    .quick    = {{"sequences", {8}}, {"long_prompts", {0}}},
    .variants = {{.id         = "one_rank",
                  .start      = starts(one_rank()),
                  .techniques = {"continuous_batching", "paged_kv"},
                  .idea       = "the threads of one rank share the rows of each op"},
                 {.id         = "tensor_parallel",
                  .start      = starts(two_ranks()),
                  .techniques = {"tensor_parallel"},
                  .idea       = "two ranks, half of every layer each: two sums a layer",
                  .prediction = predict::ratio(0.9)},
                 {.id         = "pipeline_parallel",
                  .start      = starts(two_stages()),
                  .techniques = {"pipeline_parallel"},
                  .idea       = "two stages, three layers each: micro-batches go from one to the other",
                  .prediction = predict::ratio(0.6)}},
    .catalog  = {"serving-012"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::pipeline_parallel_cpu
