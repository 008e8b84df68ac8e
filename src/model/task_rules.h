// The rules named in models/tiny/tasks.toml. A rule draws the values of a prompt's slots and computes the
// answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"

namespace fathom::model {

// Random numbers that depend on a seed, a task and an index only.
class Draw {
 public:
  Draw(uint64_t seed, uint32_t task, uint64_t index)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), task, 0} {}

  int below(int n) {  // 0 to n - 1, n > 0
    if (left_ == 0) bits_ = philox(counter_, key_), ++counter_[3], left_ = 4;
    return static_cast<int>(uint64_t{bits_[--left_]} * static_cast<uint64_t>(n) >> 32);
  }
  int between(int lowest, int highest) { return lowest + below(highest - lowest + 1); }
  bool chance(int percent) { return below(100) < percent; }

  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[below(static_cast<int>(list.size()))];
  }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter bits_{};
  int left_ = 0;
};

// The names that a phrasing may have in braces. Rules fill the first ones; from kWordSlots on they are the
// grammar's word lists, in its order.
enum Slot { kA, kB, kList, kWord, kLetter, kN, kDate, kOther, kStory, kWordSlots };
inline constexpr const char* kSlotNames[kWordSlots] = {"a", "b",    "list",  "word", "letter",
                                                       "n", "date", "other", "story"};

using Slots = std::vector<std::string>;

// A parsed phrasing such as "Add {a} and {b}."
struct Phrase {
  struct Part {
    std::string text;
    int slot = -1;  // the slot after the text; -1: none
  };
  std::vector<Part> parts;

  bool uses(int slot) const;
  void append(const Slots& slots, std::string& out) const;
};

enum class Way { none, largest, smallest, larger, smaller, equal, ascending, descending, after, before, now };

struct WordList {
  std::string name;
  std::vector<std::string> words;
};

// A case while a rule fills it in.
struct CaseDraft {
  Slots slots;
  std::string thought, answer;
};

struct TaskKind;
using Rule = void (*)(const TaskKind&, Draw&, CaseDraft&);

// One [[task.kind]] of the grammar.
struct TaskKind {
  Rule rule = nullptr;
  int share = 1;
  Way way   = Way::none;
  int min = 0, max = 0;  // number of digits, items, letters, days or facts, by rule
  int source = -1;       // slot of the word list that the rule draws from
  std::vector<Phrase> phrasings, sentences, takes;
  Phrase answer;
  std::shared_ptr<const std::vector<WordList>> words;

  const std::vector<std::string>& list(int slot) const { return (*words)[slot - kWordSlots].words; }
  int slot(std::string_view list) const;  // precondition: the list exists
};

// Requirements of a rule on its kind, checked when the grammar is read.
struct RuleTraits {
  const char* name;
  Rule rule;
  std::vector<Way> ways;           // allowed ways; empty: the kind has none
  int min, max;                    // bounds of the kind's min and max; 0, 0: the kind has neither
  int source_words;                // size of its word list, at least; 0: it has no list
  std::vector<const char*> lists;  // lists that it uses by name, of kMaxItems words or more
  bool tells;                      // a story: needs sentences and an answer
};
const RuleTraits* find_rule(std::string_view name);  // null if unknown

// Rules of stories, in task_stories.cpp. They use the kind's sentences, and its answer as a phrasing.
void facts(const TaskKind& kind, Draw& draw, CaseDraft& draft);
void moves(const TaskKind& kind, Draw& draw, CaseDraft& draft);
void carried(const TaskKind& kind, Draw& draw, CaseDraft& draft);
void fixed(const TaskKind& kind, Draw& draw, CaseDraft& draft);

// A random pronounceable word: mostly, vowels and consonants alternate.
std::string made_up_word(Draw& draw, int min_letters, int max_letters);

// Draws `count` different numbers below `n`, in random order. Precondition: count <= kMaxItems, count <= n.
inline constexpr int kMaxItems = 9;
struct Picks {
  int of[kMaxItems];
  int count;
};
Picks different(Draw& draw, int n, int count);

}  // namespace fathom::model
