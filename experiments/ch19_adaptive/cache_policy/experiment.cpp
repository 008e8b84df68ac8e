// A prefix cache that is too small has to evict something. What was used last is what is used next, or it is
// a text that nobody asks about again: no fixed policy is right for both. Do the blocks that are missed say
// which?
#include <string>

#include "core/expect.h"
#include "experiments/engine_session.h"

namespace fathom::lab::cache_policy {

using namespace engine_session;
using engine::EvictionPolicy;

// 64 pages; a prompt takes about 12 of them, all but two with a prefix that others may share. One request
// runs at a time, so that the order of uses is that of the workload.
engine::EngineConfig config(EvictionPolicy eviction) {
  engine::EngineConfig config;
  config.max_context   = 512;
  config.max_sequences = 1;
  config.kv_tokens     = 1024;
  config.eviction      = eviction;
  return config;
}

// "scan": three topics come back in each round, with two texts between them that come once: more than the
// cache holds. In the first round each topic is asked about twice. "shift": four topics are asked about twice
// each and never again, then three others once in each round.
std::vector<uint64_t> topics(const std::string& load, int64_t rounds) {
  FATHOM_EXPECT(load == "scan" || load == "shift", "load is scan or shift");
  std::vector<uint64_t> order;
  uint64_t once = 100;
  if (load == "shift")
    for (const uint64_t old : {10, 10, 11, 11, 12, 12, 13, 13}) order.push_back(old);
  for (int64_t round = 0; round < rounds; ++round)
    for (uint64_t topic = 0; topic < 3; ++topic) {
      order.push_back(topic);
      if (load == "shift") continue;
      if (round == 0) order.push_back(topic);
      order.push_back(once++), order.push_back(once++);
    }
  return order;
}

Workload workload(const std::string& load, int64_t rounds) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (const uint64_t topic : topics(load, rounds))
      asked.push_back({.prompt = prompt_of(
                           {.seed = seed, .index = asked.size(), .shots = 6, .about = 1000 * seed + topic}),
                       .max_tokens = 4,
                       .exactly    = true});
    return asked;
  };
}

auto starts(EvictionPolicy eviction) {
  return [=](const Point& at) {
    return replay_on(engine_of(config(eviction)), workload(at.text("load"), at["rounds"]),
                     [](const Seen& seen, Metrics& metrics) {
                       const auto& s            = seen.stats;
                       metrics["hit_rate"]      = {static_cast<double>(s.prefix_hit_tokens) /
                                                       static_cast<double>(s.prefix_queried_tokens),
                                                   "higher"};
                       metrics["computed_rows"] = {static_cast<double>(s.step_rows), "lower"};
                       metrics["evicted_pages"] = {static_cast<double>(s.forgotten_pages), "lower"};
                     });
  };
}

const Experiment<Session> experiment{
    .question =
        "A prefix cache that holds half of what is asked about, scanned by texts that come once or used by "
        "topics "
        "that change: which blocks should it evict, and can it tell from those that it misses?",
    .axes  = {{"load", {"scan", "shift"}}, {"rounds", {6}}},
    .quick = {{"rounds", {3}}},
    .variants =
        {
            {.id         = "lru",
             .start      = starts(EvictionPolicy::lru),
             .techniques = {"paged_kv", "prefix_caching"},
             .idea       = "the least recently used block"},
            {.id         = "frequency",
             .start      = starts(EvictionPolicy::frequency),
             .techniques = {"paged_kv", "prefix_caching", "scan_resistant_eviction"},
             .idea       = "a block that was never found again first, however new it is",
             .prediction = predict::ratio(1.3)},
            {.id         = "adaptive",
             .start      = starts(EvictionPolicy::adaptive),
             .techniques = {"paged_kv", "prefix_caching", "scan_resistant_eviction", "adaptive_eviction"},
             .idea       = "both kinds have a share of the pages, which follows the blocks missed (ARC)",
             .prediction = predict::ratio(1.25)},
        },
    .catalog = {"adaptive-008"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::cache_policy
