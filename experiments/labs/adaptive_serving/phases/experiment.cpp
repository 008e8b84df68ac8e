// Which setting of an engine is the fastest depends on the text and on the load, and both change. How much of
// the gain of the best setting for each phase does an engine find that has to learn it while it serves?
#include <array>
#include <map>
#include <string>

#include "experiments/engine_session.h"
#include "setting_by_phase.h"

namespace fathom::lab::phases {

using namespace engine_session;

engine::EngineConfig default_config() {
  engine::EngineConfig config;
  config.max_context   = 1024;
  config.max_sequences = 16;
  config.kv_tokens     = 8192;
  return config;
}

// The settings between which --adaptive chooses, each fixed, in the order of kSettingNames.
std::vector<engine::EngineConfig> fixed_configs() {
  std::vector<engine::EngineConfig> configs(kSettings, default_config());
  configs[1].draft_tokens = 2;
  configs[2].draft_tokens = 4;
  configs[3].step_tokens /= 4;
  return configs;
}

engine::EngineConfig adaptive_config() {
  engine::EngineConfig config = default_config();
  config.draft_tokens         = 4;
  config.adaptive             = true;
  return config;
}

// `tokens`: of the long answer. Each phase begins when the one before has ended.
//   repetitive  one answer of so many tokens; its end token is ignored, and the model repeats itself
//   random      one of half as many, at temperature 3: no text predicts it
//   many        short answers to as many questions at once
//   prompts     long prompts with answers of four tokens
std::array<size_t, kPhases> requests_of(int64_t tokens) {
  return {1, 1, static_cast<size_t>(std::max<int64_t>(tokens / 32, 2)),
          static_cast<size_t>(std::max<int64_t>(tokens / 256, 1))};
}

Workload workload(int64_t tokens) {
  return [=](uint64_t seed) {
    const auto requests = requests_of(tokens);
    std::vector<Asked> asked;
    for (size_t phase = 0; phase < kPhases; ++phase)
      for (uint64_t i = 0; i < requests[phase]; ++i) {
        Asked one{.phase = static_cast<int64_t>(phase)};
        const bool long_prompt = phase == 3;
        one.prompt             = prompt_of({.seed  = seed,
                                            .index = 100 * phase + i,
                                            .task  = phase < 2 ? "reversing" : "",
                                            .shots = long_prompt ? 12 : 0,
                                            .about = seed + i});
        one.exactly            = phase != 2;
        one.max_tokens         = phase == 0 ? tokens : phase == 1 ? tokens / 2 : phase == 2 ? 96 : 4;
        if (phase == 1) one.temperature = 3, one.sampling_seed = seed;
        asked.push_back(std::move(one));
      }
    return asked;
  };
}

void report(const Seen& seen, Metrics& metrics) {
  for (size_t phase = 0; phase < kPhases; ++phase)
    metrics[std::string(kPhaseNames[phase]) + "_ns"] = {seen.phase_s[phase] * 1e9, "lower"};
  const auto drafted = static_cast<double>(seen.stats.drafted_tokens);
  if (drafted > 0)
    metrics["accept_rate"] = {static_cast<double>(seen.stats.accepted_tokens) / drafted, "higher"};
  metrics["setting_changes"] = {static_cast<double>(seen.stats.setting_changes), "lower"};
}

// What the fixed settings' replays took, by `tokens`. The harness replays one session at a time.
PhaseTimes& known_times(int64_t tokens) {
  static std::map<int64_t, PhaseTimes> times;
  return times[tokens];
}

auto fixed(size_t setting) {
  return [=](const Point& at) {
    const int64_t tokens = at["tokens"];
    return replay_on(engine_of(fixed_configs()[setting]), workload(tokens),
                     [=](const Seen& seen, Metrics& metrics) {
                       report(seen, metrics);
                       known_times(tokens).add(setting, seen.phase_s);
                     });
  };
}

std::unique_ptr<Session> adaptive(const Point& at) {
  return replay_on(engine_of(adaptive_config()), workload(at["tokens"]),
                   [](const Seen& seen, Metrics& metrics) {
                     report(seen, metrics);
                     double all_s = 0;
                     for (const double spent_s : seen.stats.setting_s) all_s += spent_s;
                     for (size_t s = 0; s < kSettings && all_s > 0; ++s)
                       metrics["share_" + std::string(engine::kSettingNames[s])] = {
                           seen.stats.setting_s[s] / all_s, "higher"};
                   });
}

std::unique_ptr<Session> oracle(const Point& at) {
  const int64_t tokens = at["tokens"];
  std::array<size_t, kPhases> settings;
  for (size_t phase = 0; phase < kPhases; ++phase) settings[phase] = known_times(tokens).fastest(phase);
  return replay_on([=] { return engines_by_phase(fixed_configs(), settings, requests_of(tokens)); },
                   workload(tokens),
                   [=](const Seen& seen, Metrics& metrics) {
                     report(seen, metrics);
                     for (size_t phase = 0; phase < kPhases; ++phase)
                       metrics["setting_" + std::string(kPhaseNames[phase])] = {
                           static_cast<double>(settings[phase]), "lower"};
                   });
}

const Experiment<Session> experiment{
    .question =
        "Repetitive text, random text, many short answers, long prompts: how near does an engine that tunes "
        "itself come to the best fixed setting of each phase?",
    .axes  = {{"tokens", {768}}},
    .quick = {{"tokens", {96}}},
    .variants =
        {
            {.id         = "default",
             .start      = fixed(0),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill"},
             .idea       = "no drafts, steps of up to 512 tokens"},
            {.id         = "half_drafts",
             .start      = fixed(1),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill", "speculative_decoding"},
             .idea       = "drafts of at most two tokens from n-grams, in all phases",
             .prediction = predict::ratio(1.04)},
            {.id         = "drafts",
             .start      = fixed(2),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill", "speculative_decoding"},
             .idea       = "drafts of at most four tokens, in all phases",
             .prediction = predict::ratio(1.08)},
            {.id         = "small_steps",
             .start      = fixed(3),
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill"},
             .idea       = "steps of up to 128 tokens, in all phases",
             .prediction = predict::ratio(0.98)},
            {.id         = "adaptive",
             .start      = adaptive,
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill", "speculative_decoding",
                            "reinforcement_tuning"},
             .idea       = "--adaptive: discounted UCB over these settings, never told of a phase",
             .prediction = predict::ratio_at_least(0.98)},
            {.id         = "oracle",
             .start      = oracle,
             .techniques = {"continuous_batching", "paged_kv", "chunked_prefill", "speculative_decoding"},
             .idea       = "each phase under the fixed setting that was fastest in it so far (hindsight)",
             .prediction = predict::ratio(1.1)},
        },
    .catalog = {"adaptive-007", "serving-016"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::phases
