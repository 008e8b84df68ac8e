// fathom model eval: a model's accuracy, task by task, and how likely it finds the right answers; against
// another model or the same with another KV cache or other activations, how far the two differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/progress.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "engine/accuracy_eval.h"
#include "engine/likelihood_eval.h"

namespace fathom::cli {
namespace {

using engine::AccuracyReport;
using nlohmann::json;

struct EvalFlags {
  std::string folder, against, drafter;
  std::string grammar = bundled_grammar();
  std::string against_kv, against_activation;
  bool hadamard = false;
  int64_t count = 2000, likelihood_count = 50;
  uint64_t seed = 1;
  EngineFlags engine;
  OutputFlags outputs;
};

struct Evaluation {
  std::string kv_cache;     // as "fp32", "fp8", or "fp8, emulated" on a CPU
  std::string activations;  // as "fp32": inputs of the experts
  engine::Likelihood likelihood;
  AccuracyReport accuracy;
  // While the cases were answered.
  int64_t drafted_tokens = 0, accepted_tokens = 0, generated_tokens = 0;
  std::vector<double> accepted_at;  // by place: share of the drafts of which that token was accepted

  // Of one sequence: what was accepted came without a step.
  double tokens_per_step() const {
    return generated_tokens == 0 ? 0
                                 : static_cast<double>(generated_tokens) /
                                       static_cast<double>(generated_tokens - accepted_tokens);
  }
};

struct Evaluated {
  Evaluation first;
  std::optional<Evaluation> second;
};

std::string kv_cache_of(const engine::EngineConfig& config) {
  if (config.kv_dtype == engine::EngineConfig::KvDtype::automatic) return config.gpu ? "bf16" : "fp32";
  for (const auto& [name, dtype] : kv_dtypes())
    if (dtype == config.kv_dtype)
      return fmt::format("{}{}{}", name, config.emulate_kv_hadamard ? " after a Hadamard rotation" : "",
                         config.gpu ? "" : ", emulated");
  return "unknown";
}

std::string activations_of(const engine::EngineConfig& config) {
  if (config.activation_dtype == engine::EngineConfig::ActivationDtype::int8) return "int8";
  return config.gpu ? "bf16" : "fp32";
}

Evaluation evaluate(const std::string& folder, const EvalFlags& flags, engine::EngineConfig config) {
  const auto grammar = value_or_usage_error(model::TaskGrammar::load(flags.grammar));
  config.max_context = engine::kEvaluationContext;
  // On a CPU a format is asked for to see its quality, and nothing is saved.
  config.emulate_kv_dtype = !config.gpu;
  const auto engine       = open_engine(folder, config);
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const auto progress_of = [&](std::string what) {
    return [&display, what = what + ", " + folder, start = std::chrono::steady_clock::now()](int64_t done,
                                                                                             int64_t total) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      display.show(
          {.experiment   = what,
           .done         = static_cast<int>(done),
           .total        = static_cast<int>(total),
           .seconds_left = passed.count() * static_cast<double>(total - done) / static_cast<double>(done)});
    };
  };
  const auto answers = value_or_usage_error(engine::held_out_answers(
      engine->checkpoint(), grammar, std::min(flags.likelihood_count, flags.count), flags.seed));
  auto likelihood =
      value_or_usage_error(engine::evaluate_likelihood(*engine, answers, progress_of("right answers")));
  const engine::GeneratorStats before = engine->stats();
  auto accuracy                       = value_or_usage_error(
                            engine::evaluate_accuracy(*engine, grammar, flags.count, flags.seed, progress_of("cases")));
  const engine::GeneratorStats after = engine->stats();
  std::vector<double> accepted_at;
  for (size_t place = 0; place < after.accepted_at.size(); ++place)
    if (const int64_t accepted = after.accepted_at[place] - before.accepted_at[place]; accepted > 0)
      accepted_at.push_back(static_cast<double>(accepted) /
                            static_cast<double>(after.drafts - before.drafts));
  return {.kv_cache         = kv_cache_of(config),
          .activations      = activations_of(config),
          .likelihood       = std::move(likelihood),
          .accuracy         = std::move(accuracy),
          .drafted_tokens   = after.drafted_tokens - before.drafted_tokens,
          .accepted_tokens  = after.accepted_tokens - before.accepted_tokens,
          .generated_tokens = after.generated_tokens - before.generated_tokens,
          .accepted_at      = std::move(accepted_at)};
}

Evaluated evaluate(const EvalFlags& flags) {
  auto config                = flags.engine.chosen();
  config.emulate_kv_hadamard = flags.hadamard;
  if (!flags.drafter.empty()) {
    config.draft_method    = engine::EngineConfig::DraftMethod::eagle3;
    config.draft_model     = flags.drafter;
    config.draft_tokens    = config.draft_tokens > 0 ? config.draft_tokens : 7;
    config.draft_sequences = config.max_sequences;
    config.draft_budget    = false;
  }
  Evaluated seen{.first = evaluate(flags.folder, flags, config)};
  if (flags.against.empty() && flags.against_kv.empty() && flags.against_activation.empty()) return seen;
  config.emulate_kv_hadamard = false;
  if (!flags.against_kv.empty()) config.kv_dtype = kv_dtypes().at(flags.against_kv);
  if (!flags.against_activation.empty())
    config.activation_dtype = activation_dtypes().at(flags.against_activation);
  seen.second       = evaluate(flags.against.empty() ? flags.folder : flags.against, flags, config);
  const auto &first = seen.first.likelihood, &second = seen.second->likelihood;
  if (first.tokens != second.tokens || first.logprobs.size() != second.logprobs.size())
    throw UsageError(fmt::format("{} and {} have different vocabularies: their answers can't be compared",
                                 flags.folder, flags.against));
  return seen;
}

Table to_table(const Evaluated& seen) {
  Table table{.columns = {{"task"}, {"cases", true}, {"right", true}}, .rows = {}};
  if (seen.second)
    for (const char* column : {"against", "only first", "only against"})
      table.columns.push_back({column, true});
  const auto percent = [](double share) { return fmt::format("{:.2f} %", 100 * share); };
  for (size_t t = 0; t < seen.first.accuracy.tasks.size(); ++t) {
    const engine::TaskAccuracy& score = seen.first.accuracy.tasks[t];
    auto& row                         = table.rows.emplace_back(std::vector<std::string>{
                                score.task, std::to_string(score.correct.size()), percent(score.accuracy())});
    if (!seen.second) continue;
    const auto [only_first, only_second] = engine::discordant_pairs(score, seen.second->accuracy.tasks[t]);
    row.push_back(percent(seen.second->accuracy.tasks[t].accuracy()));
    row.push_back(std::to_string(only_first));
    row.push_back(std::to_string(only_second));
  }
  return table;
}

json to_json(const Evaluation& evaluation) {
  const AccuracyReport& accuracy       = evaluation.accuracy;
  const engine::Likelihood& likelihood = evaluation.likelihood;
  json tasks                           = json::object();
  for (const engine::TaskAccuracy& score : accuracy.tasks)
    tasks[score.task] = {{"cases", score.correct.size()}, {"accuracy", score.accuracy()}};
  json out = {{"tasks", tasks},
              {"accuracy", accuracy.accuracy()},
              {"prompt_tokens", accuracy.prompt_tokens},
              {"answer_tokens", accuracy.answer_tokens},
              {"drafted_tokens", evaluation.drafted_tokens},
              {"accepted_tokens", evaluation.accepted_tokens},
              {"tokens_per_step", evaluation.tokens_per_step()},
              {"accepted_at", evaluation.accepted_at},
              {"kv_cache", evaluation.kv_cache},
              {"activations", evaluation.activations},
              {"likelihood",
               {{"answers", likelihood.answers},
                {"tokens", likelihood.tokens},
                {"nll", likelihood.nll},
                {"perplexity", likelihood.perplexity()}}},
              {"expert_load", nullptr},
              {"smallest_expert_share", nullptr}};
  if (accuracy.expert_load.empty()) return out;
  out["expert_load"]           = accuracy.expert_load;
  out["smallest_expert_share"] = accuracy.smallest_expert_share();
  return out;
}

json to_json(const EvalFlags& flags, const Evaluated& seen) {
  json out          = {{"schema", "fathom.eval/1"}, {"count", flags.count}, {"seed", flags.seed}};
  out["model"]      = to_json(seen.first);
  out["against"]    = nullptr;
  out["discordant"] = nullptr;
  out["divergence"] = nullptr;
  if (!seen.second) return out;
  out["against"]    = to_json(*seen.second);
  out["discordant"] = json::object();
  for (size_t t = 0; t < seen.first.accuracy.tasks.size(); ++t) {
    const auto& task             = seen.first.accuracy.tasks[t];
    const auto count             = engine::discordant_pairs(task, seen.second->accuracy.tasks[t]);
    out["discordant"][task.task] = {{"only_model", count.only_first}, {"only_against", count.only_second}};
  }
  const auto agreement = engine::greedy_agreement(seen.second->accuracy, seen.first.accuracy);
  out["divergence"]    = {{"kl", engine::kl_divergence(seen.second->likelihood, seen.first.likelihood)},
                          {"nll", seen.first.likelihood.nll - seen.second->likelihood.nll},
                          {"answers", agreement.answers},
                          {"equal_answers", agreement.equal},
                          {"agreed_tokens", agreement.agreed_tokens},
                          {"answer_tokens", agreement.answer_tokens}};
  return out;
}

std::string likelihood_text(const Evaluation& evaluation) {
  return fmt::format("{:.6f} nats a token, perplexity {:.5f} (KV cache {}, activations {})",
                     evaluation.likelihood.nll, evaluation.likelihood.perplexity(), evaluation.kv_cache,
                     evaluation.activations);
}

void print(const Evaluated& seen) {
  fmt::print("{}", to_text(to_table(seen)));
  fmt::print("\nall tasks {:.2f} %", 100 * seen.first.accuracy.accuracy());
  if (seen.second) fmt::print(", against {:.2f} %", 100 * seen.second->accuracy.accuracy());
  if (!seen.first.accuracy.expert_load.empty())
    fmt::print("; the least used expert of a layer has {:.2f} of an even share",
               seen.first.accuracy.smallest_expert_share());
  fmt::print("\nright answers, teacher-forced ({} tokens of {}): {}\n", seen.first.likelihood.tokens,
             seen.first.likelihood.answers, likelihood_text(seen.first));
  if (seen.first.drafted_tokens > 0)
    fmt::print("drafts: {} of {} tokens accepted, {:.2f} tokens a step; of a draft's k-th token: {:.2f}\n",
               seen.first.accepted_tokens, seen.first.drafted_tokens, seen.first.tokens_per_step(),
               fmt::join(seen.first.accepted_at, " "));
  if (!seen.second) return;
  const auto agreement = engine::greedy_agreement(seen.second->accuracy, seen.first.accuracy);
  fmt::print(
      "against: {}\nKL(against || model) {:.3g} nats a token; of {} greedy answers {} are equal, and on "
      "average the first {:.2f} tokens of {:.2f}\n",
      likelihood_text(*seen.second), engine::kl_divergence(seen.second->likelihood, seen.first.likelihood),
      agreement.answers, agreement.equal, agreement.agreed_tokens, agreement.answer_tokens);
}

}  // namespace

void add_model_eval(CLI::App& model_verb, int& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App& verb =
      *model_verb.add_subcommand("eval", "Task accuracy and likelihood (NLL, perplexity, KL) of a model");
  verb.add_option("folder", flags->folder, "With config.json, *.safetensors and tokenizer.json")->required();
  verb.add_option("--against", flags->against, "Another model, on the same cases");
  verb.add_option("--against-kv-cache-dtype", flags->against_kv,
                  "KV cache of --against, or of the same model (default: as --kv-cache-dtype)")
      ->check(CLI::IsMember(kv_dtypes()));
  verb.add_option("--against-activation-dtype", flags->against_activation,
                  "Activations of --against, or of the same model (default: as --activation-dtype)")
      ->check(CLI::IsMember(activation_dtypes()));
  verb.add_flag("--kv-cache-hadamard", flags->hadamard,
                "Rotate keys and values by a Hadamard matrix before --kv-cache-dtype rounds them, on a CPU");
  verb.add_option(
      "--drafter", flags->drafter,
      "Draft with the draft model of this folder, at most --draft-tokens (default 7) tokens in every step, "
      "and say how many are accepted");
  verb.add_option("--count", flags->count, "Held-out cases of each task")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--likelihood-count", flags->likelihood_count,
                  "Right answers of each task whose likelihood is measured, at most --count")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--seed", flags->seed, "Other cases for each")->capture_default_str();
  verb.add_option("--grammar", flags->grammar, "The file that says what the tasks are")
      ->capture_default_str();
  add_engine_flags(verb, flags->engine);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] {
    const Evaluated seen = evaluate(*flags);
    const auto table     = [&] { return to_table(seen); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(*flags, seen); }, table, table})) print(seen);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
