// fathom model eval: a model's accuracy, task by task.
#include <fmt/format.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/engine_flags.h"
#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/progress.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/source_tree.h"
#include "engine/accuracy_eval.h"

namespace fathom::cli {
namespace {

using engine::AccuracyReport;
using nlohmann::json;

struct EvalFlags {
  std::string folder, against;
  std::string grammar = find_source_tree().value_or(".") + "/models/tiny/tasks.toml";
  int64_t count       = 2000;
  uint64_t seed       = 1;
  EngineFlags engine;
  OutputFlags outputs;
};

struct Evaluated {
  AccuracyReport first;
  std::optional<AccuracyReport> second;
};

AccuracyReport evaluate(const std::string& folder, const EvalFlags& flags) {
  const auto grammar = value_or_usage_error(model::TaskGrammar::load(flags.grammar));
  auto config        = flags.engine.chosen();
  config.max_context = engine::kEvaluationContext;
  const auto engine  = open_engine(folder, config);
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const auto start    = std::chrono::steady_clock::now();
  const auto progress = [&](int64_t done, int64_t total) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    display.show(
        {.experiment   = "cases, " + folder,
         .done         = static_cast<int>(done),
         .total        = static_cast<int>(total),
         .seconds_left = passed.count() * static_cast<double>(total - done) / static_cast<double>(done)});
  };
  return value_or_usage_error(engine::evaluate_accuracy(*engine, grammar, flags.count, flags.seed, progress));
}

Table to_table(const Evaluated& seen) {
  Table table{.columns = {{"task"}, {"cases", true}, {"right", true}}, .rows = {}};
  if (seen.second)
    for (const char* column : {"against", "only first", "only against"})
      table.columns.push_back({column, true});
  const auto percent = [](double share) { return fmt::format("{:.2f} %", 100 * share); };
  for (size_t t = 0; t < seen.first.tasks.size(); ++t) {
    const engine::TaskAccuracy& score = seen.first.tasks[t];
    auto& row                         = table.rows.emplace_back(std::vector<std::string>{
                                score.task, std::to_string(score.correct.size()), percent(score.accuracy())});
    if (!seen.second) continue;
    const auto [only_first, only_second] = engine::discordant_pairs(score, seen.second->tasks[t]);
    row.push_back(percent(seen.second->tasks[t].accuracy()));
    row.push_back(std::to_string(only_first));
    row.push_back(std::to_string(only_second));
  }
  return table;
}

json to_json(const AccuracyReport& evaluation) {
  json tasks = json::object();
  for (const engine::TaskAccuracy& score : evaluation.tasks)
    tasks[score.task] = {{"cases", score.correct.size()}, {"accuracy", score.accuracy()}};
  json out = {{"tasks", tasks},
              {"accuracy", evaluation.accuracy()},
              {"prompt_tokens", evaluation.prompt_tokens},
              {"answer_tokens", evaluation.answer_tokens},
              {"expert_load", nullptr},
              {"smallest_expert_share", nullptr}};
  if (evaluation.expert_load.empty()) return out;
  out["expert_load"]           = evaluation.expert_load;
  out["smallest_expert_share"] = evaluation.smallest_expert_share();
  return out;
}

json to_json(const EvalFlags& flags, const Evaluated& seen) {
  json out          = {{"schema", "fathom.eval/1"}, {"count", flags.count}, {"seed", flags.seed}};
  out["model"]      = to_json(seen.first);
  out["against"]    = nullptr;
  out["discordant"] = nullptr;
  if (!seen.second) return out;
  out["against"]    = to_json(*seen.second);
  out["discordant"] = json::object();
  for (size_t t = 0; t < seen.first.tasks.size(); ++t) {
    const auto count = engine::discordant_pairs(seen.first.tasks[t], seen.second->tasks[t]);
    out["discordant"][seen.first.tasks[t].task] = {{"only_model", count.only_first},
                                                   {"only_against", count.only_second}};
  }
  return out;
}

void print(const Evaluated& seen) {
  fmt::print("{}", to_text(to_table(seen)));
  fmt::print("\nall tasks {:.2f} %", 100 * seen.first.accuracy());
  if (seen.second) fmt::print(", against {:.2f} %", 100 * seen.second->accuracy());
  if (!seen.first.expert_load.empty())
    fmt::print("; the least used expert of a layer has {:.2f} of an even share",
               seen.first.smallest_expert_share());
  fmt::print("\n");
}

}  // namespace

void add_model_eval(CLI::App& model_verb, int& exit_code) {
  auto flags     = std::make_shared<EvalFlags>();
  CLI::App& verb = *model_verb.add_subcommand("eval", "How often a model's answers to its tasks are right");
  verb.add_option("folder", flags->folder, "With config.json, *.safetensors and tokenizer.json")->required();
  verb.add_option("--against", flags->against, "Another model, on the same cases");
  verb.add_option("--count", flags->count, "Held-out cases of each task")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--seed", flags->seed, "Other cases for each")->capture_default_str();
  verb.add_option("--grammar", flags->grammar, "The file that says what the tasks are")
      ->capture_default_str();
  add_engine_flags(verb, flags->engine);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] {
    Evaluated seen{.first = evaluate(flags->folder, *flags)};
    if (!flags->against.empty()) seen.second = evaluate(flags->against, *flags);
    const auto table = [&] { return to_table(seen); };
    if (!write_outputs(flags->outputs, {[&] { return to_json(*flags, seen); }, table, table})) print(seen);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
