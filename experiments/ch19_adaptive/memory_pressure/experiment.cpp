// Answers grow while they are written, so an engine that admits what fits now runs out of pages later. When
// should it stop admitting, and when begin again?
#include "core/expect.h"
#include "experiments/engine_session.h"

namespace fathom::lab::memory_pressure {

using namespace engine_session;

// 64 pages for layers with full attention. A prompt takes about 4 of them, a finished answer up to 16 more.
engine::EngineConfig config(double high, double low) {
  engine::EngineConfig config;
  config.max_context       = 512;
  config.max_sequences     = 16;
  config.kv_tokens         = 1024;
  config.kv_high_watermark = high;
  config.kv_low_watermark  = low;
  return config;
}

// "long": exactly 160 tokens each, ten pages more than when they were admitted. "mixed": 8 to 256.
Workload workload(const std::string& answers, int64_t count) {
  FATHOM_EXPECT(answers == "long" || answers == "mixed", "answers are long or mixed");
  if (answers == "mixed") return answers_of_many_lengths(count);
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(count)(seed);
    for (Asked& request : asked) request.max_tokens = 160, request.exactly = true;
    return asked;
  };
}

void report(const Seen& seen, Metrics& metrics) {
  metrics["preemptions"]     = {static_cast<double>(seen.stats.preemptions), "lower"};
  metrics["computed_rows"]   = {static_cast<double>(seen.stats.step_rows), "lower"};
  metrics["admission_holds"] = {static_cast<double>(seen.stats.admission_holds), "lower"};
  metrics["held_steps"]      = {static_cast<double>(seen.stats.held_steps), "lower"};
  metrics["forgotten_pages"] = {static_cast<double>(seen.stats.forgotten_pages), "lower"};
}

auto starts(double high, double low) {
  return [=](const Point& at) {
    return replay_on(engine_of(config(high, low)), workload(at.text("answers"), at["requests"]), report);
  };
}

const Experiment<Session> experiment{
    .question =
        "Answers outgrow a small KV cache: does closing admission before it is full save "
        "more recomputation than it costs in batch size, and does it take one threshold or two?",
    .axes  = {{"answers", {"long", "mixed"}}, {"requests", {48}}},
    .quick = {{"requests", {16}}},
    .variants =
        {
            {.id         = "preempt",
             .start      = starts(1, 1),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "priority_preemption"},
             .idea       = "admits what fits now; where pages run out, the latest sequence is preempted"},
            {.id         = "one_watermark",
             .start      = starts(0.85, 0.85),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "priority_preemption",
                            "memory_pressure"},
             .idea       = "admission is closed while more than 0.85 of the pages are taken",
             .prediction = predict::ratio(1.1)},
            {.id         = "two_watermarks",
             .start      = starts(0.85, 0.7),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "priority_preemption",
                            "memory_pressure"},
             .idea       = "closes above 0.85 and opens at 0.7 (hysteresis)",
             .prediction = predict::ratio(1.15)},
            {.id         = "half",
             .start      = starts(0.5, 0.4),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "priority_preemption",
                            "memory_pressure"},
             .idea       = "closes above 0.5 and opens at 0.4: hardly a preemption, and a small batch",
             .prediction = predict::ratio(1.0)},
        },
    .catalog = {"adaptive-005"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::memory_pressure
