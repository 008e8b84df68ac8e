#include "model/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "core/expect.h"
#include "core/read_file.h"

namespace fathom::model {
namespace {

constexpr uint64_t kHeldOutOf = 16;

constexpr std::pair<std::string_view, Way> kWays[] = {
    {"largest", Way::largest}, {"smallest", Way::smallest},     {"larger", Way::larger},
    {"smaller", Way::smaller}, {"equal", Way::equal},           {"ascending", Way::ascending},
    {"after", Way::after},     {"descending", Way::descending}, {"before", Way::before},
    {"now", Way::now}};

uint64_t hash(std::string_view text) { return XXH64(text.data(), text.size(), 0); }

// Thrown and caught in this file only.
struct Refusal {
  std::string why;
};

[[noreturn]] void refuse(std::string why) { throw Refusal{std::move(why)}; }

}  // namespace

// Reads one file. Throws Refusal.
struct TaskGrammar::Reader {
  std::shared_ptr<std::vector<WordList>> words = std::make_shared<std::vector<WordList>>();
  std::string where;  // the part being read, for messages

  TaskGrammar read(const toml::table& file) {
    TaskGrammar grammar;
    where                  = "system_prompt";
    grammar.system_prompt_ = text(file, "system_prompt");
    read_words(file);
    const toml::array* tasks = file["task"].as_array();
    if (!tasks || tasks->empty()) refuse("it has no [[task]]: add one");
    for (const toml::node& node : *tasks) {
      where                    = "[[task]]";
      const toml::table& table = object(node);
      Task task{.name = text(table, "name"), .measured = table["measured"].value_or(true)};
      if (std::ranges::count(grammar.tasks_, task.name, &Task::name)) refuse("two are called " + task.name);
      task.id                  = static_cast<uint32_t>(hash(task.name));
      const toml::array* kinds = table["kind"].as_array();
      if (!kinds || kinds->empty()) refuse(fmt::format("task {} has no [[task.kind]]: add one", task.name));
      for (const toml::node& kind : *kinds) {
        where = fmt::format("task {}, kind {}", task.name, task.kinds.size() + 1);
        task.kinds.push_back(read_kind(object(kind)));
        task.shares += task.kinds.back().share;
      }
      grammar.tasks_.push_back(std::move(task));
    }
    return grammar;
  }

 private:
  const toml::table& object(const toml::node& node) {
    if (!node.is_table()) refuse(where + ": expected a table");
    return *node.as_table();
  }

  std::string text(const toml::table& table, const char* key) {
    const auto value = table[key].value<std::string>();
    if (!value || value->empty()) refuse(fmt::format("{}: '{}' is missing: add it", where, key));
    return *value;
  }

  std::vector<std::string> texts(const toml::node* node, std::string_view key) {
    std::vector<std::string> all;
    if (node && node->is_array())
      for (const toml::node& entry : *node->as_array()) all.push_back(entry.value_or(std::string()));
    if (all.empty() || std::ranges::count(all, ""))
      refuse(fmt::format("{}: '{}' must be a list of texts, none of them empty", where, key));
    return all;
  }

  void read_words(const toml::table& file) {
    where                    = "[words]";
    const toml::table* lists = file["words"].as_table();
    if (!lists || lists->empty()) refuse("it has no [words]: add lists of them");
    for (const auto& [key, list] : *lists) {
      const std::string name(key.str());
      if (std::ranges::count(kSlotNames, name)) refuse(fmt::format("[words]: '{}' is a rule's slot", name));
      words->push_back({name, texts(&list, name)});
      const std::vector<std::string>& read = words->back().words;
      if (std::unordered_set<std::string_view>(read.begin(), read.end()).size() < read.size())
        refuse(fmt::format("[words]: '{}' has a word twice: remove one", name));
    }
  }

  const WordList& list(std::string_view name, int least) {
    const auto found = std::ranges::find(*words, name, &WordList::name);
    if (found == words->end()) refuse(fmt::format("{}: [words] has no list '{}': add it", where, name));
    if (static_cast<int>(found->words.size()) < least)
      refuse(fmt::format("{}: the list '{}' needs {} words or more", where, name, least));
    return *found;
  }

  int slot_of(const WordList& list) { return kWordSlots + static_cast<int>(&list - words->data()); }

  Phrase phrase(std::string_view text) {
    Phrase phrase;
    while (!text.empty()) {
      const size_t open = std::min(text.find('{'), text.size()), close = text.find('}', open);
      Phrase::Part part{.text = std::string(text.substr(0, open))};
      if (open < text.size()) {
        if (close == std::string_view::npos) refuse(fmt::format("{}: '{}' lacks a }}", where, text));
        const std::string_view name = text.substr(open + 1, close - open - 1);
        const auto own              = std::ranges::find(kSlotNames, name);
        part.slot = own != std::end(kSlotNames) ? static_cast<int>(own - kSlotNames) : slot_of(list(name, 1));
      }
      phrase.parts.push_back(std::move(part));
      text.remove_prefix(open < text.size() ? close + 1 : open);
    }
    return phrase;
  }

  std::vector<Phrase> phrases(const toml::table& table, const char* key) {
    std::vector<Phrase> all;
    for (const std::string& text : texts(table.get(key), key)) all.push_back(phrase(text));
    return all;
  }

  int integer(const toml::table& table, const char* key, int fallback, int lo, int hi) {
    const toml::node* node = table.get(key);
    const int64_t value    = node ? node->value<int64_t>().value_or(lo - int64_t{1}) : fallback;
    if (value < lo || value > hi)
      refuse(fmt::format("{}: '{}' must be an integer from {} to {}", where, key, lo, hi));
    return static_cast<int>(value);
  }

  TaskKind read_kind(const toml::table& table) {
    const std::string name   = text(table, "rule");
    const RuleTraits* traits = find_rule(name);
    if (!traits) refuse(fmt::format("{}: there is no rule '{}': see src/model/task_rules.cpp", where, name));
    TaskKind kind{.rule = traits->rule, .share = integer(table, "share", 1, 1, 1000), .words = words};
    if (!traits->ways.empty()) {
      const std::string way = text(table, "way");
      const auto found      = std::ranges::find(kWays, way, &std::pair<std::string_view, Way>::first);
      if (found == std::end(kWays) || !std::ranges::count(traits->ways, found->second))
        refuse(fmt::format("{}: '{}' is no way of the rule '{}'", where, way, name));
      kind.way = found->second;
    }
    if (traits->max > 0) {
      kind.max = integer(table, "max", traits->min - 1, traits->min, traits->max);
      kind.min = integer(table, "min", traits->min, traits->min, kind.max);
    }
    if (traits->source_words > 0) kind.source = slot_of(list(text(table, "words"), traits->source_words));
    for (const char* needed : traits->lists) list(needed, kMaxItems);
    kind.phrasings = phrases(table, "phrasings");
    if (traits->tells) kind.sentences = phrases(table, "sentences");
    if (table.contains("takes")) kind.takes = phrases(table, "takes");
    if (table.contains("answer")) kind.answer = phrase(text(table, "answer"));
    if (traits->rule == carried && kind.takes.empty()) refuse(where + ": 'takes' is missing: add it");
    if ((traits->tells || traits->rule == fixed) == kind.answer.parts.empty())
      refuse(fmt::format("{}: the rule '{}' needs an 'answer': add it", where, name));
    if (traits->rule == facts)
      for (const Phrase& sentence : kind.sentences)
        for (const Phrase::Part& part : sentence.parts) {
          if (part.slot >= kWordSlots) list((*words)[part.slot - kWordSlots].name, kind.max);
          if (part.slot >= 0 && part.slot < kWordSlots && part.slot != kN)
            refuse(fmt::format("{}: a fact's slots are lists of words and {{n}}", where));
        }
    return kind;
  }
};

Result<TaskGrammar> TaskGrammar::parse(std::string_view text, const std::string& path) {
  try {
    return Reader().read(toml::parse(text, path));
  } catch (const toml::parse_error& error) {
    return Error{fmt::format("{}, line {}: {}: correct it", path, error.source().begin.line,
                             std::string(error.description()))};
  } catch (const Refusal& refusal) {
    return Error{fmt::format("{}: {}", path, refusal.why)};
  }
}

Result<TaskGrammar> TaskGrammar::load(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return Error{text.error().message + ": name a task grammar"};
  if (text->empty()) return Error{path + " is empty: name a task grammar"};
  return parse(*text, path);
}

Result<const Task*> TaskGrammar::find(std::string_view name) const {
  const auto found = std::ranges::find(tasks_, name, &Task::name);
  if (found != tasks_.end()) return &*found;
  std::vector<std::string> names;
  for (const Task& task : tasks_) names.push_back(task.name);
  return Error{fmt::format("there is no task '{}': choose among {}", name, fmt::join(names, ", "))};
}

TaskCase make_case(const Task& task, uint64_t seed, uint64_t index) {
  Draw draw(seed, task.id, index);
  int ticket           = draw.below(task.shares);
  const TaskKind* kind = task.kinds.data();
  for (; ticket >= kind->share; ++kind) ticket -= kind->share;
  CaseDraft draft{.slots = Slots(kWordSlots + kind->words->size())};
  kind->rule(*kind, draw, draft);
  TaskCase made{.thought = std::move(draft.thought), .answer = std::move(draft.answer)};
  draw.one_of(kind->phrasings).append(draft.slots, made.prompt);
  return made;
}

bool is_held_out(std::string_view prompt) { return hash(prompt) % kHeldOutOf == 0; }

Result<std::vector<TaskCase>> held_out(const Task& task, int64_t n, uint64_t seed) {
  FATHOM_EXPECT(task.measured, "nothing of " + task.name + " is held out");
  const uint64_t max_index = kHeldOutOf * 64 * static_cast<uint64_t>(std::max<int64_t>(n, 1));
  std::unordered_set<std::string> prompts;
  std::vector<TaskCase> cases;
  for (uint64_t index = 0; std::ssize(cases) < n; ++index) {
    if (index == max_index)
      return Error{fmt::format("the task {} has only about {} held-out prompts, not {}: widen its ranges",
                               task.name, cases.size(), n)};
    TaskCase made = make_case(task, seed, index);
    if (is_held_out(made.prompt) && prompts.insert(made.prompt).second) cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace fathom::model
