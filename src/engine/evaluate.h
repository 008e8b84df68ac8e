// How often a model's greedy answers to its tasks are right (model/tasks.h): exact match of the final
// channel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "model/tasks.h"

namespace fathom::engine {

struct TaskScore {
  std::string task;
  std::vector<bool> right;  // of each case

  double accuracy() const;  // 0 for no cases
};

struct Evaluation {
  std::vector<TaskScore> tasks;
  std::vector<std::vector<int64_t>> expert_load;  // [layers][E], tokens; none where nobody counts them
  int64_t prompt_tokens = 0, answer_tokens = 0;

  double accuracy() const;  // over all cases
  // The least loaded expert of any layer: its share of the layer's tokens as a multiple of an even share.
  double smallest_expert_share() const;
};

// Of answers with at most this many tokens, prompt and answer: one that is longer is wrong.
inline constexpr int64_t kEvaluationContext = 512;

// `count` held-out cases of each task of the grammar that is measured, of that seed, by an engine that does
// nothing else and is drained by it; its max_context is at least kEvaluationContext. `progress` hears how
// many cases of how many are answered. An error where the checkpoint cannot chat or the grammar has too few
// cases.
Result<Evaluation> evaluate(Engine& engine, const model::TaskGrammar& grammar, int64_t count, uint64_t seed,
                            const std::function<void(int64_t done, int64_t total)>& progress = {});

// Two models on the same cases: how many only one of them gets right.
struct Discordant {
  int64_t only_first = 0, only_second = 0;
};
Discordant discordant(const TaskScore& first, const TaskScore& second);

}  // namespace fathom::engine
