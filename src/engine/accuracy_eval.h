// Accuracy of a model on its tasks (model/tasks.h): exact match of the final channel of greedy answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "model/tasks.h"

namespace fathom::engine {

struct TaskAccuracy {
  std::string task;
  std::vector<bool> correct;  // by case

  double accuracy() const;  // 0 for no cases
};

struct AccuracyReport {
  std::vector<TaskAccuracy> tasks;
  std::vector<std::vector<int64_t>> expert_load;  // [layers][E], tokens; empty where the runner counts none
  int64_t prompt_tokens = 0, answer_tokens = 0;

  double accuracy() const;  // over all cases
  // Load of the least loaded expert of any layer, as a multiple of an even share of the layer's tokens.
  double smallest_expert_share() const;
};

// Prompt and answer together; a longer answer counts as wrong.
inline constexpr int64_t kEvaluationContext = 512;

// Evaluates `count` held-out cases of each measured task of the grammar, drawn with `seed`. The engine must
// be idle and have a max_context of at least kEvaluationContext; it is drained. `progress` is called with the
// cases done and their total. Fails where the checkpoint has no chat format or the grammar has too few cases.
Result<AccuracyReport> evaluate_accuracy(
    Engine& engine, const model::TaskGrammar& grammar, int64_t count, uint64_t seed,
    const std::function<void(int64_t done, int64_t total)>& progress = {});

// Two models on the same cases: the number of cases that only one of them answers correctly, as in McNemar's
// test.
struct DiscordantPairs {
  int64_t only_first = 0, only_second = 0;
};
DiscordantPairs discordant_pairs(const TaskAccuracy& first, const TaskAccuracy& second);

}  // namespace fathom::engine
