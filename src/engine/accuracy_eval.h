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
  std::vector<bool> correct;                         // by case
  std::vector<std::vector<model::TokenId>> answers;  // by case, greedy, with the token that ended it

  double accuracy() const;  // 0 for no cases
};

struct AccuracyReport {
  std::vector<TaskAccuracy> tasks;
  // [layers][E], tokens since the engine started; empty where the runner counts none.
  std::vector<std::vector<int64_t>> expert_load;
  int64_t prompt_tokens = 0, answer_tokens = 0;

  double accuracy() const;  // over all cases
  // Load of the least loaded expert of any layer, as a multiple of an even share of the layer's tokens.
  double smallest_expert_share() const;
};

// Prompt and answer together; a longer answer counts as wrong.
inline constexpr int64_t kEvaluationContext = 512;

// The tokens of a conversation that asks for the answer to `question`, and whether the checkpoint has what
// that needs: a tokenizer with harmony's control tokens.
Status can_be_evaluated(const model::Checkpoint& checkpoint);
Result<std::vector<model::TokenId>> evaluation_prompt(const model::Checkpoint& checkpoint,
                                                      const std::string& question);

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

// How far the greedy answers of two models are the same, token by token.
struct GreedyAgreement {
  int64_t answers = 0, equal = 0;
  // Means over the answers: the tokens before the first that differs, and those of the reference's answer.
  double agreed_tokens = 0, answer_tokens = 0;
};
GreedyAgreement greedy_agreement(const AccuracyReport& reference, const AccuracyReport& other);

}  // namespace fathom::engine
