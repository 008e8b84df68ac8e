// Small tasks with one right answer, for the bundled model: what it is trained on and measured by. One file,
// models/tiny/tasks.toml, says what they are.
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
  std::string thought;  // for the analysis channel; "" where the answer comes straight away
  std::string answer;   // the whole text of the final channel
};

struct Task {
  std::string name;
  bool measured = true;  // false for manners: nothing of it is held out
  uint32_t id   = 0;     // of the name, so that tasks of one seed draw differently
  std::vector<Kind> kinds;
  int shares = 0;  // of the kinds, together
};

// Immutable; safe to use from many threads.
class TaskGrammar {
 public:
  // Errors name `path`, the task, the key and the remedy.
  static Result<TaskGrammar> load(const std::string& path);
  static Result<TaskGrammar> parse(std::string_view toml, const std::string& path);

  const std::string& system_prompt() const { return system_prompt_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  Result<const Task*> find(std::string_view task) const;  // an error lists the tasks there are

 private:
  struct Reader;

  std::string system_prompt_;
  std::vector<Task> tasks_;
};

// A pure function of the grammar, the task, the seed and the index; held out or not.
TaskCase make_case(const Task& task, uint64_t seed, uint64_t index);

// One prompt in 16, by the XXH64 of its bytes: whatever task, seed and index it comes from, a prompt is
// either for training or for measuring.
bool is_held_out(std::string_view prompt);

// The first n cases of that seed with different held-out prompts. Precondition: the task is measured. An
// error when the grammar has fewer.
Result<std::vector<TaskCase>> held_out(const Task& task, int64_t n, uint64_t seed);

}  // namespace fathom::model
