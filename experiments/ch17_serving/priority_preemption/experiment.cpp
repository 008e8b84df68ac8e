// Requests that can wait fill the engine when an urgent one arrives. What does it take to answer it at once,
// and what does that cost the others?
#include "experiments/engine_session.h"

namespace fathom::lab::priority_preemption {

using namespace engine_session;

constexpr uint64_t kUrgent = 12;

engine::EngineConfig config(bool keeps) {
  engine::EngineConfig config;
  config.max_context     = 512;
  config.max_sequences   = 8;
  config.kv_tokens       = 8192;
  config.prefix_cache    = keeps;
  config.chunked_prefill = false;
  return config;
}

Workload workload(int64_t patient, bool by_priority) {
  const Workload together = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < static_cast<uint64_t>(patient) + kUrgent; ++i) {
      const bool urgent = i >= static_cast<uint64_t>(patient);
      asked.push_back({.prompt     = prompt_of({.seed = seed, .index = i}),
                       .max_tokens = urgent ? 8 : 96,
                       .exactly    = true,
                       .priority   = by_priority && !urgent ? 1 : 0,
                       .apart      = urgent});
    }
    return asked;
  };
  static const double whole_s = static_cast<double>(patient + static_cast<int64_t>(kUrgent)) /
                                saturation_rps(engine_of(config(false)), together);
  return [=](uint64_t seed) {
    std::vector<Asked> asked = together(seed);
    // The last urgent one arrives after three quarters of the time.
    std::vector<Asked> urgent(kUrgent);
    arrive(urgent, kUrgent / (0.75 * whole_s), seed);
    for (uint64_t i = 0; i < kUrgent; ++i) asked[static_cast<size_t>(patient) + i].at_s = urgent[i].at_s;
    return asked;
  };
}

void report(const Seen& seen, Metrics& metrics) {
  std::vector<double> first_s, patient_s;
  for (size_t i = 0; i < seen.requests.size(); ++i)
    if (seen.asked[i].apart)
      first_s.push_back(seen.requests[i].ttft_s());
    else
      patient_s.push_back(seen.requests[i].e2el_s());
  const load::Distribution urgent(std::move(first_s)), patient(std::move(patient_s));
  metrics["ttft_of_urgent_p50_ns"] = {1e9 * *urgent.median(), "lower"};
  metrics["ttft_of_urgent_p95_ns"] = {1e9 * *urgent.percentile(95), "lower"};
  metrics["e2e_of_patient_p50_ns"] = {1e9 * *patient.median(), "lower"};
  metrics["duration_ns"]           = {1e9 * seen.summary.duration_s, "lower"};
  metrics["preemptions"]           = {static_cast<double>(seen.stats.preemptions), "lower"};
  metrics["computed_rows"]         = {static_cast<double>(seen.stats.step_rows), "lower"};
}

auto starts(bool by_priority, bool keeps) {
  return [=](const Point& at) {
    return replay_on(engine_of(config(keeps)), workload(at["patient"], by_priority), report);
  };
}

const Experiment<Session> experiment{
    .question =
        "Forty requests that can wait fill the engine: how soon does an urgent one get its first token, and "
        "what does that cost the others?",
    .axes  = {{"patient", {40}}},
    .quick = {{"patient", {12}}},
    .variants =
        {
            {.id         = "in_order",
             .start      = starts(false, false),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "first come, first served"},
            {.id         = "priorities",
             .start      = starts(true, false),
             .techniques = {"continuous_batching", "paged_kv", "priority_preemption"},
             .idea       = "the newest patient request is preempted, and recomputed later",
             .prediction = predict::ratio_at_least(10)},
            {.id         = "priorities_kept",
             .start      = starts(true, true),
             .techniques = {"continuous_batching", "paged_kv", "priority_preemption", "prefix_caching"},
             .idea       = "the same with the prefix cache: it finds pages that were not reused",
             .prediction = predict::ratio_at_least(10)},
        },
    .catalog = {"serving-011"},
    .goal    = "ttft_of_urgent_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::priority_preemption
