#include "engine/accuracy_eval.h"

#include <algorithm>
#include <future>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/expect.h"
#include "model/harmony.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr size_t kQueued = 256;  // cases submitted at once

// The whole text of the final channel.
std::string final_text(const model::Checkpoint& checkpoint, std::span<const TokenId> answer) {
  model::HarmonyParser parser(*checkpoint.tokenizer, *checkpoint.harmony);
  for (const TokenId id : answer) parser.add(id);
  parser.finish();
  std::string text;
  for (const model::HarmonyMessage& message : parser.messages())
    if (message.channel == "final") text += message.content;
  return text;
}

}  // namespace

Status can_be_evaluated(const model::Checkpoint& checkpoint) {
  if (checkpoint.tokenizer && checkpoint.harmony) return Ok{};
  return Error{checkpoint.tensors.path() +
               ": an evaluation needs a tokenizer.json with harmony's control tokens beside it"};
}

Result<std::vector<TokenId>> evaluation_prompt(const model::Checkpoint& checkpoint,
                                               const std::string& question) {
  std::vector<model::HarmonyMessage> messages;
  if (!checkpoint.system_prompt.empty())
    messages.push_back({.role = "system", .content = checkpoint.system_prompt});
  messages.push_back({.role = "user", .content = question});
  auto prompt = model::render_harmony(*checkpoint.tokenizer, *checkpoint.harmony, messages);
  if (prompt && static_cast<int64_t>(prompt->size()) >= kEvaluationContext)
    return Error{"the case '" + question + "' fills the context of an evaluation: make it shorter"};
  return prompt;
}

namespace {

// Greedy answers, each with the token that ended it.
Result<std::vector<std::vector<TokenId>>> greedy(Engine& engine, std::vector<std::vector<TokenId>> prompts) {
  std::vector<std::vector<TokenId>> answers(prompts.size());
  std::promise<void> ended;
  std::string error;
  size_t left = prompts.size();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto size = static_cast<int64_t>(prompts[i].size());
    Request request;
    request.prompt               = std::move(prompts[i]);
    request.max_tokens           = kEvaluationContext - size;
    request.stop_ids             = engine.checkpoint().eos_ids;
    request.sampling.temperature = 0;
    const auto taken             = engine.submit(std::move(request), [&, i](const RequestOutput& progress) {
      for (const Sampled& token : progress.tokens) answers[i].push_back(token.id);
      if (!progress.error.empty()) error = progress.error;
      if (progress.finish && --left == 0) ended.set_value();
    });
    FATHOM_EXPECT(std::holds_alternative<RequestId>(taken), "an engine must take an evaluation's cases");
  }
  ended.get_future().wait();
  if (!error.empty()) return Error{error};
  return answers;
}

}  // namespace

double TaskAccuracy::accuracy() const {
  if (correct.empty()) return 0;
  return static_cast<double>(std::count(correct.begin(), correct.end(), true)) /
         static_cast<double>(correct.size());
}

double AccuracyReport::accuracy() const {
  double right = 0, cases = 0;
  for (const TaskAccuracy& task : tasks) {
    right += task.accuracy() * static_cast<double>(task.correct.size());
    cases += static_cast<double>(task.correct.size());
  }
  return cases > 0 ? right / cases : 0;
}

double AccuracyReport::smallest_expert_share() const {
  double smallest = 1;
  for (const auto& layer : expert_load) {
    const auto total = std::accumulate(layer.begin(), layer.end(), int64_t{0});
    if (total == 0) continue;
    const double even = static_cast<double>(total) / static_cast<double>(layer.size());
    smallest = std::min(smallest, static_cast<double>(*std::min_element(layer.begin(), layer.end())) / even);
  }
  return smallest;
}

Result<AccuracyReport> evaluate_accuracy(Engine& engine, const model::TaskGrammar& grammar, int64_t count,
                                         uint64_t seed,
                                         const std::function<void(int64_t done, int64_t total)>& progress) {
  const model::Checkpoint& checkpoint = engine.checkpoint();
  if (const Status can = can_be_evaluated(checkpoint); !can) return can.error();
  AccuracyReport evaluation;
  std::vector<std::vector<model::TaskCase>> cases;
  int64_t total = 0, done = 0;
  for (const model::Task& task : grammar.tasks()) {
    if (!task.measured) continue;
    auto held_out = model::held_out(task, count, seed);
    if (!held_out) return held_out.error();
    evaluation.tasks.push_back({.task = task.name});
    cases.push_back(std::move(held_out).value());
    total += count;
  }
  for (size_t t = 0; t < cases.size(); ++t)
    for (size_t from = 0; from < cases[t].size(); from += kQueued) {
      const auto piece = std::span(cases[t]).subspan(from, std::min(kQueued, cases[t].size() - from));
      std::vector<std::vector<TokenId>> prompts;
      for (const model::TaskCase& one : piece) {
        auto prompt = evaluation_prompt(checkpoint, one.prompt);
        if (!prompt) return prompt.error();
        evaluation.prompt_tokens += static_cast<int64_t>(prompt->size());
        prompts.push_back(std::move(prompt).value());
      }
      auto answers = greedy(engine, std::move(prompts));
      if (!answers) return answers.error();
      for (size_t i = 0; i < piece.size(); ++i) {
        auto& answer = (*answers)[i];
        evaluation.answer_tokens += static_cast<int64_t>(answer.size());
        evaluation.tasks[t].correct.push_back(final_text(checkpoint, answer) == piece[i].answer);
        evaluation.tasks[t].answers.push_back(std::move(answer));
      }
      done += static_cast<int64_t>(piece.size());
      if (progress) progress(done, total);
    }
  engine.drain(std::chrono::hours(1));
  const View<const int64_t, 2> load = engine.expert_load();
  for (int64_t l = 0; l < load.extent(0); ++l)
    evaluation.expert_load.emplace_back(&load(l, 0), &load(l, 0) + load.extent(1));
  return evaluation;
}

DiscordantPairs discordant_pairs(const TaskAccuracy& first, const TaskAccuracy& second) {
  FATHOM_EXPECT(first.correct.size() == second.correct.size(), "the two models have met different cases");
  DiscordantPairs count;
  for (size_t i = 0; i < first.correct.size(); ++i) {
    count.only_first += first.correct[i] && !second.correct[i];
    count.only_second += !first.correct[i] && second.correct[i];
  }
  return count;
}

GreedyAgreement greedy_agreement(const AccuracyReport& reference, const AccuracyReport& other) {
  FATHOM_EXPECT(reference.tasks.size() == other.tasks.size(), "the two models have met different tasks");
  GreedyAgreement found;
  for (size_t t = 0; t < reference.tasks.size(); ++t) {
    const auto &a = reference.tasks[t].answers, &b = other.tasks[t].answers;
    FATHOM_EXPECT(a.size() == b.size(), "the two models have met different cases");
    for (size_t i = 0; i < a.size(); ++i) {
      const auto differ = std::mismatch(a[i].begin(), a[i].end(), b[i].begin(), b[i].end()).first;
      ++found.answers;
      found.equal += a[i] == b[i];
      found.agreed_tokens += static_cast<double>(differ - a[i].begin());
      found.answer_tokens += static_cast<double>(a[i].size());
    }
  }
  if (found.answers > 0)
    found.agreed_tokens /= static_cast<double>(found.answers),
        found.answer_tokens /= static_cast<double>(found.answers);
  return found;
}

}  // namespace fathom::engine
