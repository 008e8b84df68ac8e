// The rules by which models/tiny/tasks.toml makes cases: each draws what a phrasing's slots hold and solves
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"

namespace fathom::model {

// Random numbers that follow from a seed, a task and an index alone.
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

// What a phrasing may name in braces. The first are a rule's; those from kWordSlots on are the grammar's
// lists of words, in its order.
enum Slot { kA, kB, kList, kWord, kLetter, kN, kDate, kOther, kStory, kWordSlots };
inline constexpr const char* kSlotNames[kWordSlots] = {"a", "b",    "list",  "word", "letter",
                                                       "n", "date", "other", "story"};

using Slots = std::vector<std::string>;

// "Add {a} and {b}.", read.
struct Phrase {
  struct Part {
    std::string text;
    int slot = -1;  // that follows the text; -1 for none
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

struct Draft {  // of a case
  Slots slots;
  std::string thought, answer;
};

struct Kind;
using Rule = void (*)(const Kind&, Draw&, Draft&);

// A kind of a task, as the grammar has it.
struct Kind {
  Rule rule = nullptr;
  int share = 1;
  Way way   = Way::none;
  int min = 0, max = 0;  // digits, items, letters, days or facts, as the rule says
  int source = -1;       // slot of the list that the rule takes words from
  std::vector<Phrase> phrasings, sentences, takes;
  Phrase answer;
  std::shared_ptr<const std::vector<WordList>> words;

  const std::vector<std::string>& list(int slot) const { return (*words)[slot - kWordSlots].words; }
  int slot(std::string_view list) const;  // of a list that there is
};

// What a rule needs of its kind, for the grammar's reader to check.
struct RuleTraits {
  const char* name;
  Rule rule;
  std::vector<Way> ways;           // that it knows; empty where it has no use for one
  int least, most;                 // bounds of the kind's min and max; 0, 0 where it has no use for them
  int source_words;                // that its list must have; 0 where it takes none
  std::vector<const char*> lists;  // that it takes words from by name; each has kMostItems or more
  bool tells;                      // a story: it needs sentences and an answer
};
const RuleTraits* find_rule(std::string_view name);  // null where there is none

// Of stories, in task_stories.cpp. They read the kind's sentences, and its answer as a phrasing.
void facts(const Kind& kind, Draw& draw, Draft& draft);
void moves(const Kind& kind, Draw& draw, Draft& draft);
void carried(const Kind& kind, Draw& draw, Draft& draft);
void fixed(const Kind& kind, Draw& draw, Draft& draft);

// Letters like those of a word, mostly vowels and consonants in turns.
std::string made_up_word(Draw& draw, int min_letters, int max_letters);

// `count` different numbers below `n`, in any order; count <= kMostItems and count <= n.
inline constexpr int kMostItems = 9;
struct Picks {
  int of[kMostItems];
  int count;
};
Picks different(Draw& draw, int n, int count);

}  // namespace fathom::model
