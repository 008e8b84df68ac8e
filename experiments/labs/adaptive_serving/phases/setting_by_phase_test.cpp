#include "setting_by_phase.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "experiments/engine_session.h"

namespace fathom::lab::phases {
namespace {

using namespace engine_session;

TEST(PhaseTimes, TheFastestHasTheLowestMedian) {
  PhaseTimes times;
  EXPECT_EQ(times.fastest(0), 0u);
  times.add(0, {2, 1, 1, 1});
  times.add(1, {1, 2, 1, 1});
  times.add(2, {9, 9, 9, 1});
  EXPECT_EQ(times.fastest(0), 0u);  // the last setting is not known yet
  times.add(3, {9, 9, 9, 0.5});
  EXPECT_EQ(times.fastest(0), 1u);
  EXPECT_EQ(times.fastest(1), 0u);
  EXPECT_EQ(times.fastest(2), 0u);  // of equal ones the first
  EXPECT_EQ(times.fastest(3), 3u);
  times.add(1, {7, 2, 1, 1}), times.add(1, {8, 2, 1, 1});
  EXPECT_EQ(times.fastest(0), 0u);  // its median is 7 now
}

// Two requests of two tokens in each phase; the second of a phase is sampled.
std::vector<Asked> workload(uint64_t seed) {
  std::vector<Asked> asked;
  for (int64_t phase = 0; phase < static_cast<int64_t>(kPhases); ++phase)
    for (const double temperature : {0.0, 2.0})
      asked.push_back({.prompt        = prompt_of({.seed = seed, .index = asked.size()}),
                       .max_tokens    = 2,
                       .exactly       = true,
                       .phase         = phase,
                       .temperature   = temperature,
                       .sampling_seed = seed});
  std::reverse(asked.begin(), asked.end());  // the order of a workload is not that of its phases
  return asked;
}

TEST(EnginesByPhase, AnswersAsOneEngineDoesAndPhasesDoNotOverlap) {
  engine::EngineConfig config;
  config.max_context = 256, config.kv_tokens = 512, config.max_sequences = 2, config.threads = 1;
  std::vector<engine::EngineConfig> configs(kSettings, config);
  configs[1].draft_tokens = 2;
  Seen seen;
  const auto look       = [&](const Seen& all, Metrics&) { seen = all; };
  const auto answers_of = [&](const Start& start) {
    const auto session = replay_on(start, workload, look);
    session->prepare(4);
    return session->replay().outputs;
  };
  const auto one = answers_of(engine_of(config));
  ASSERT_EQ(one.size(), 2 * kPhases);
  const auto by_phase = answers_of([&] { return engines_by_phase(configs, {1, 0, 1, 3}, {2, 2, 2, 2}); });
  EXPECT_EQ(by_phase, one);
  ASSERT_EQ(seen.phase_s.size(), kPhases);
  for (size_t i = 0; i < one.size(); ++i)
    for (size_t j = 0; j < one.size(); ++j)
      if (seen.asked[i].phase < seen.asked[j].phase) {
        EXPECT_LE(seen.requests[i].ended_s, seen.requests[j].sent_s) << i << ", " << j;
      }
}

}  // namespace
}  // namespace fathom::lab::phases
