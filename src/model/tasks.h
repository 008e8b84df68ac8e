// The tasks that the bundled model is trained and evaluated on, each with one correct answer. They are
// defined in models/tiny/tasks.toml.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/task_rules.h"

namespace fathom::model {

struct TaskCase {
  std::string prompt;
  std::string thought;  // content of the analysis channel; "": no analysis
  std::string answer;   // content of the final channel
};

struct Task {
  std::string name;
  bool measured = true;  // false: training only, no held-out cases
  uint32_t id   = 0;     // hash of the name, so that tasks of one seed differ
  std::vector<TaskKind> kinds;
  int shares = 0;  // sum over the kinds
};

// Immutable; safe to use from many threads.
class TaskGrammar {
 public:
  // Errors name `path`, the task, the key and the remedy.
  static Result<TaskGrammar> load(const std::string& path);
  static Result<TaskGrammar> parse(std::string_view toml, const std::string& path);

  const std::string& system_prompt() const { return system_prompt_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  Result<const Task*> find(std::string_view task) const;  // the error lists all tasks

 private:
  struct Reader;

  std::string system_prompt_;
  std::vector<Task> tasks_;
};

// Makes a case: a pure function of the grammar, the task, the seed and the index. It may be a held-out one.
TaskCase make_case(const Task& task, uint64_t seed, uint64_t index);

// One prompt in 16, by the XXH64 of its bytes. So a prompt is either for training or for evaluation, whatever
// task, seed and index it comes from.
bool is_held_out(std::string_view prompt);

// The first n cases of that seed with distinct held-out prompts. Precondition: the task is measured. Fails if
// the grammar has fewer.
Result<std::vector<TaskCase>> held_out(const Task& task, int64_t n, uint64_t seed);

}  // namespace fathom::model
