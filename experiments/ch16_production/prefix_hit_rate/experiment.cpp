// A prefix cache helps as long as prefixes stay in it. How large must it be, and does its hit rate show that?
#include "core/rng.h"
#include "experiments/engine_session.h"

namespace fathom::lab::prefix_hit_rate {

using namespace engine_session;

// Prefixes of about 220 tokens, 1800 in all; two running requests need 500 more.
constexpr int64_t kRequests  = 48;
constexpr uint64_t kPrefixes = 8;

engine::EngineConfig cache_of(int64_t tokens) {
  auto config                = engine::EngineConfig::baseline();
  config.continuous_batching = config.paged_kv = config.prefix_cache = true;
  config.max_context                                                 = 512;
  config.max_sequences                                               = 2;
  config.kv_tokens                                                   = tokens;
  return config;
}

std::vector<Asked> workload(uint64_t seed, int64_t shots) {
  std::vector<int64_t> about(kRequests);
  fill_integers(about.data(), kRequests, seed, 0, kPrefixes);
  std::vector<Asked> asked;
  for (uint64_t i = 0; i < kRequests; ++i)
    asked.push_back(
        {.prompt = prompt_of(
             {.seed = seed, .index = i, .shots = shots, .about = seed + static_cast<uint64_t>(about[i])}),
         .max_tokens = 8,
         .exactly    = true});
  return asked;
}

double hit_rate(const Seen& seen, size_t begin, size_t end) {
  int64_t hit = 0, asked = 0;
  for (size_t i = begin; i < end; ++i) {
    hit += seen.cached_tokens[i];
    asked += static_cast<int64_t>(seen.asked[i].prompt.size());
  }
  return static_cast<double>(hit) / static_cast<double>(asked);
}

auto starts(int64_t tokens) {
  return [tokens](const Point& at) {
    const int64_t shots = at["shots"];
    return replay_on(
        engine_of(cache_of(tokens)), [shots](uint64_t seed) { return workload(seed, shots); },
        [](const Seen& seen, Metrics& metrics) {
          metrics["hit_rate"] = {hit_rate(seen, 0, kRequests), "higher"};
          // By then every prefix was computed once: only evictions cause misses.
          metrics["hit_rate_second_half"] = {hit_rate(seen, kRequests / 2, kRequests), "higher"};
        });
  };
}

const Experiment<Session> experiment{
    .question =
        "Prompts start with one of eight prefixes at random: what are hit rate and time with caches that "
        "hold "
        "some of them, most, and all?",
    .axes = {{"shots", {8}}},
    .variants =
        {
            {.id         = "tokens_1024",
             .start      = starts(1024),
             .techniques = {"prefix_caching", "paged_kv", "hit_rate_monitoring"},
             .idea       = "one or two prefixes fit beside the running requests"},
            {.id         = "tokens_2048",
             .start      = starts(2048),
             .techniques = {"prefix_caching", "paged_kv", "hit_rate_monitoring"},
             .idea       = "most of the eight prefixes fit",
             .prediction = predict::ratio(1.5)},
            {.id         = "tokens_4096",
             .start      = starts(4096),
             .techniques = {"prefix_caching", "paged_kv", "hit_rate_monitoring"},
             .idea       = "all prefixes fit",
             .prediction = predict::ratio(2.5)},
        },
    .catalog = {"kv-007"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::prefix_hit_rate
