#include "engine/likelihood_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/expect.h"
#include "engine/accuracy_eval.h"
#include "model/harmony_answer.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr size_t kForcedAtOnce  = 64;  // answers submitted at once
constexpr int64_t kMostLogprobs = int64_t{1} << 30;

// Allows the next token of a known answer alone.
class Forced final : public Constraint {
 public:
  explicit Forced(std::span<const TokenId> answer) : answer_(answer) {}
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<Forced>(*this); }
  void mask_logits(std::span<float> logits) override {
    const auto next = static_cast<size_t>(answer_[at_]);
    for (size_t id = 0; id < logits.size(); ++id)
      if (id != next) logits[id] = -INFINITY;
  }
  void accept_token(TokenId) override { ++at_; }

 private:
  std::span<const TokenId> answer_;
  size_t at_ = 0;
};

}  // namespace

double Likelihood::perplexity() const { return std::exp(nll); }

Result<std::vector<ForcedAnswer>> held_out_answers(const model::Checkpoint& checkpoint,
                                                   const model::TaskGrammar& grammar, int64_t count,
                                                   uint64_t seed) {
  if (const Status can = can_be_evaluated(checkpoint); !can) return can.error();
  std::vector<ForcedAnswer> all;
  for (const model::Task& task : grammar.tasks()) {
    if (!task.measured) continue;
    const auto cases = model::held_out(task, count, seed);
    if (!cases) return cases.error();
    for (const model::TaskCase& one : *cases) {
      auto prompt = evaluation_prompt(checkpoint, one.prompt);
      if (!prompt) return prompt.error();
      auto answer =
          model::harmony_answer(*checkpoint.tokenizer, *checkpoint.harmony, one.thought, one.answer);
      if (!answer) return answer.error();
      if (static_cast<int64_t>(prompt->size() + answer->size()) > kEvaluationContext)
        return Error{
            fmt::format("the case '{}' and its answer have {} tokens, and an evaluation's context {}",
                        one.prompt, prompt->size() + answer->size(), kEvaluationContext)};
      all.push_back({std::move(prompt).value(), std::move(answer).value()});
    }
  }
  return all;
}

Result<Likelihood> evaluate_likelihood(Engine& engine, std::span<const ForcedAnswer> texts,
                                       const std::function<void(int64_t done, int64_t total)>& progress) {
  const int64_t V = engine.checkpoint().config.vocab_size;
  Likelihood found{.answers = static_cast<int64_t>(texts.size())};
  std::vector<int64_t> first;  // of each answer's tokens
  for (const ForcedAnswer& text : texts) {
    first.push_back(found.tokens);
    found.tokens += static_cast<int64_t>(text.answer.size());
  }
  if (found.tokens * V > kMostLogprobs)
    return Error{fmt::format(
        "{} tokens of answers with {} log-probabilities each take {:.1f} GiB: give less of "
        "--likelihood-count",
        found.tokens, V, static_cast<double>(found.tokens * V) * sizeof(float) / (int64_t{1} << 30))};
  found.logprobs.resize(static_cast<size_t>(found.tokens * V));
  double sum = 0;
  for (size_t from = 0; from < texts.size(); from += kForcedAtOnce) {
    const size_t count = std::min(kForcedAtOnce, texts.size() - from);
    std::promise<void> ended;
    std::string error;
    size_t left = count;
    for (size_t i = from; i < from + count; ++i) {
      Request request;
      request.prompt     = texts[i].prompt;
      request.max_tokens = static_cast<int64_t>(texts[i].answer.size());
      request.sampling   = {.temperature = 0, .logprobs = V};
      request.constraint = std::make_unique<Forced>(texts[i].answer);
      const auto taken =
          engine.submit(std::move(request), [&, token = first[i]](const RequestOutput& output) mutable {
            for (const Sampled& sampled : output.tokens) {
              sum -= *sampled.logprob;
              float* row = found.logprobs.data() + token++ * V;
              for (const TokenLogprob& of : sampled.top) row[of.id] = static_cast<float>(of.logprob);
            }
            if (!output.error.empty()) error = output.error;
            if (output.finish && --left == 0) ended.set_value();
          });
      FATHOM_EXPECT(std::holds_alternative<RequestId>(taken), "an engine must take an evaluation's answers");
    }
    ended.get_future().wait();
    if (!error.empty()) return Error{error};
    if (progress) progress(static_cast<int64_t>(from + count), found.answers);
  }
  if (found.tokens > 0) found.nll = sum / static_cast<double>(found.tokens);
  return found;
}

double kl_divergence(const Likelihood& reference, const Likelihood& other) {
  FATHOM_EXPECT(reference.tokens == other.tokens && reference.logprobs.size() == other.logprobs.size(),
                "the two models have met different answers, or have different vocabularies");
  double sum = 0;
  for (size_t i = 0; i < reference.logprobs.size(); ++i)
    sum += std::exp(static_cast<double>(reference.logprobs[i])) *
           (static_cast<double>(reference.logprobs[i]) - static_cast<double>(other.logprobs[i]));
  return reference.tokens > 0 ? sum / static_cast<double>(reference.tokens) : 0;
}

}  // namespace fathom::engine
