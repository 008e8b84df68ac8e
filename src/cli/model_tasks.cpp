// fathom model tasks: cases of the bundled model's tasks, to train it with and to look at.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "model/tasks.h"

namespace fathom::cli {
namespace {

struct TasksFlags {
  std::string grammar = bundled_grammar();
  std::string split = "train", task = "all";
  int64_t count = 10;
  uint64_t seed = 1;
};

void append_quoted(std::string_view text, std::string& line) {
  line += '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      throw UsageError("the task grammar has a control character in a text: remove it");
    if (c == '"' || c == '\\') line += '\\';
    line += c;
  }
  line += '"';
}

void append_line(const model::Task& task, const model::TaskCase& made, std::string& lines) {
  lines += "{\"task\": ";
  append_quoted(task.name, lines);
  lines += ", \"prompt\": ";
  append_quoted(made.prompt, lines);
  lines += ", \"thought\": ";
  append_quoted(made.thought, lines);
  lines += ", \"answer\": ";
  append_quoted(made.answer, lines);
  lines += "}\n";
}

void print(const std::string& lines) {
  if (std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size())
    system_failed("fwrite to standard output", errno, __FILE__, __LINE__);
}

// Written in pieces: people ask for millions of lines.
void print_training_cases(const model::Task& task, const TasksFlags& flags) {
  constexpr size_t kPiece = 1 << 16;
  std::string lines;
  int64_t count = 0;
  for (uint64_t index = 0; count < flags.count; ++index) {
    const model::TaskCase made = model::make_case(task, flags.seed, index);
    if (task.measured && model::is_held_out(made.prompt)) continue;
    append_line(task, made, lines);
    ++count;
    if (lines.size() < kPiece) continue;
    print(lines);
    lines.clear();
  }
  print(lines);
}

void print_held_out_cases(const model::Task& task, const TasksFlags& flags) {
  std::string lines;
  for (const model::TaskCase& made : value_or_usage_error(model::held_out(task, flags.count, flags.seed)))
    append_line(task, made, lines);
  print(lines);
}

void print_cases(const TasksFlags& flags) {
  const auto grammar  = value_or_usage_error(model::TaskGrammar::load(flags.grammar));
  const bool held_out = flags.split == "heldout";
  std::vector<const model::Task*> tasks;
  if (flags.task != "all") {
    tasks.push_back(value_or_usage_error(grammar.find(flags.task)));
    if (held_out && !tasks.back()->measured)
      throw UsageError("nothing of the task " + flags.task + " is held out: ask for --split train");
  } else {
    for (const model::Task& task : grammar.tasks())
      if (task.measured || !held_out) tasks.push_back(&task);
  }
  for (const model::Task* task : tasks)
    held_out ? print_held_out_cases(*task, flags) : print_training_cases(*task, flags);
}

}  // namespace

void add_model_tasks(CLI::App& model_verb, int& exit_code) {
  auto flags = std::make_shared<TasksFlags>();
  CLI::App& verb =
      *model_verb.add_subcommand("tasks", "Cases of the bundled model's tasks, a JSON object a line");
  verb.add_option("--split", flags->split, "What it trains on, or what measures it")
      ->check(CLI::IsMember({"train", "heldout"}))
      ->capture_default_str();
  verb.add_option("--task", flags->task, "One task, or all")->capture_default_str();
  verb.add_option("--count", flags->count, "Cases of each task")
      ->check(whole_at_least(0))
      ->capture_default_str();
  verb.add_option("--seed", flags->seed, "Different cases for each")->capture_default_str();
  verb.add_option("--grammar", flags->grammar, "The file that says what the tasks are")
      ->capture_default_str();
  verb.callback([flags, &exit_code] {
    print_cases(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
