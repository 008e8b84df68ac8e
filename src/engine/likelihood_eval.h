// How probable a model finds the right answers of its tasks (model/tasks.h), teacher-forced: every token of
// an answer is given, whatever the model would have written, and decoded by the engine's own steps, with its
// weights and its KV cache. Two formats of one model then differ by what they do to the probabilities, long
// before an answer turns wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "model/tasks.h"

namespace fathom::engine {

struct ForcedAnswer {
  std::vector<model::TokenId> prompt, answer;  // the answer ends with the token that ends it
};

// Prompts and right answers of `count` held-out cases of each measured task, rendered as the model was
// trained: the thought in the analysis channel, if the task has one, then the answer in the final one. Fails
// where the checkpoint has no chat format, the grammar too few cases, or a case exceeds kEvaluationContext.
Result<std::vector<ForcedAnswer>> held_out_answers(const model::Checkpoint& checkpoint,
                                                   const model::TaskGrammar& grammar, int64_t count,
                                                   uint64_t seed);

struct Likelihood {
  int64_t answers = 0, tokens = 0;
  double nll = 0;               // mean over the answers' tokens of -log p, in nats
  std::vector<float> logprobs;  // [tokens, V]: the whole distribution at each token of each answer, in order

  double perplexity() const;  // exp(nll)
};

// The engine must be idle, with a max_context for the longest of the texts; it takes requests afterwards.
// Fails where the distributions, 4 V bytes a token, take more than 4 GiB, or a logit is NaN. `progress` is
// called with the answers done and their total.
Result<Likelihood> evaluate_likelihood(Engine& engine, std::span<const ForcedAnswer> texts,
                                       const std::function<void(int64_t done, int64_t total)>& progress = {});

// KL(reference || other) in nats a token: the mean over the tokens of the same answers, which both must have
// been measured on, with one vocabulary.
double kl_divergence(const Likelihood& reference, const Likelihood& other);

}  // namespace fathom::engine
