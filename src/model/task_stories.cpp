// Rules that tell a short story and ask a question about it.
#include <algorithm>
#include <vector>

#include "model/task_rules.h"

namespace fathom::model {
namespace {

constexpr int kLowestCount = 2, kHighestCount = 20;  // of things that a person has

// Appends a sentence about some slots to the story, and only the slots' values to the thought, from which the
// answer can be looked up. Each word of the thought has a space before it, as within a sentence, because
// words with and without a space are different tokens.
void tell(const std::vector<Phrase>& sentences, const std::vector<int>& slots, Draw& draw, CaseDraft& draft) {
  std::string& story = draft.slots[kStory];
  if (!story.empty()) story += ' ', draft.thought += ',';
  draw.one_of(sentences).append(draft.slots, story);
  for (const int slot : slots) draft.thought += " " + draft.slots[slot];
}

// Appends the places of a path to the thought.
void follow(const TaskKind& kind, const std::vector<int>& path, CaseDraft& draft) {
  for (const int place : path)
    draft.thought += " " + kind.list(kind.slot("place"))[static_cast<size_t>(place)];
}

}  // namespace

// Independent facts. The slots of the fact in question stay filled.
void facts(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  struct Column {
    int slot;
    Picks picks;
  };
  const int count = draw.between(kind.min, kind.max);
  std::vector<Column> columns;
  std::vector<int> told;
  const int slots = static_cast<int>(draft.slots.size());
  for (int slot = 0; slot < slots; ++slot)
    if (std::ranges::any_of(kind.sentences, [slot](const Phrase& phrase) { return phrase.uses(slot); })) {
      const int choices =
          slot == kN ? kHighestCount - kLowestCount + 1 : static_cast<int>(kind.list(slot).size());
      columns.push_back({slot, different(draw, choices, count)});
      told.push_back(slot);
    }
  const auto fill = [&](int fact) {
    for (const auto& [slot, picks] : columns)
      draft.slots[slot] =
          slot == kN ? std::to_string(kLowestCount + picks.of[fact]) : kind.list(slot)[picks.of[fact]];
  };
  for (int fact = 0; fact < count; ++fact) {
    fill(fact);
    tell(kind.sentences, told, draw, draft);
  }
  fill(draw.below(count));
  kind.answer.append(draft.slots, draft.answer);
}

// Two or three people move between places, to none twice. The question is where one of them is or was before.
void moves(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  constexpr int kMostMoves = 6;
  const int name = kind.slot("name"), place = kind.slot("place");
  const int needed = kind.way == Way::before ? 2 : 1, people = draw.between(2, 3);
  const int moves   = draw.between(needed + 1, kMostMoves);
  const Picks who   = different(draw, static_cast<int>(kind.list(name).size()), people);
  const Picks where = different(draw, static_cast<int>(kind.list(place).size()), moves);
  const Picks sure = different(draw, moves, needed);  // moves of the first person, whom the question is about
  std::vector<int> of_first;
  for (int move = 0; move < moves; ++move) {
    const bool first = std::find(sure.of, sure.of + needed, move) != sure.of + needed;
    const int mover  = first ? 0 : draw.below(people);
    if (mover == 0) of_first.push_back(where.of[move]);
    draft.slots[name]  = kind.list(name)[who.of[mover]];
    draft.slots[place] = kind.list(place)[where.of[move]];
    tell(kind.sentences, {name, place}, draw, draft);
  }
  draft.slots[name]  = kind.list(name)[who.of[0]];
  const int last     = static_cast<int>(of_first.size()) - 1;
  const int asked    = kind.way == Way::before ? draw.between(1, last) : last;
  const int answered = kind.way == Way::before ? asked - 1 : asked;
  draft.thought += "; " + draft.slots[name];
  follow(kind, of_first, draft);
  draft.slots[place] = kind.list(place)[of_first[answered]];
  kind.answer.append(draft.slots, draft.answer);
  draft.slots[place] = kind.list(place)[of_first[asked]];
}

// Each of two or three people takes a thing and then goes to one or two places. Their stories are
// interleaved.
void carried(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  constexpr int kMostPeople = 3, kMostMoves = 2;
  const int name = kind.slot("name"), place = kind.slot("place"), thing = kind.slot("thing");
  const int people  = draw.between(2, kMostPeople);
  const Picks who   = different(draw, static_cast<int>(kind.list(name).size()), people);
  const Picks what  = different(draw, static_cast<int>(kind.list(thing).size()), people);
  const Picks where = different(draw, static_cast<int>(kind.list(place).size()), kMostPeople * kMostMoves);
  std::vector<int> path[kMostPeople];
  int left[kMostPeople] = {}, sentences = 0;
  for (int person = 0; person < people; ++person) sentences += left[person] = 1 + draw.between(1, kMostMoves);
  bool took[kMostPeople] = {};
  for (int next = 0; sentences > 0; --sentences) {
    int person = draw.below(people);
    while (left[person] == 0) person = (person + 1) % people;
    --left[person];
    draft.slots[name]  = kind.list(name)[who.of[person]];
    draft.slots[thing] = kind.list(thing)[what.of[person]];
    if (took[person]) {
      path[person].push_back(where.of[next++]);
      draft.slots[place] = kind.list(place)[path[person].back()];
      tell(kind.sentences, {name, place}, draw, draft);
    } else {
      took[person] = true;
      tell(kind.takes, {name, thing}, draw, draft);
    }
  }
  const int asked    = draw.below(people);
  draft.slots[name]  = kind.list(name)[who.of[asked]];
  draft.slots[thing] = kind.list(thing)[what.of[asked]];
  draft.slots[place] = kind.list(place)[path[asked].back()];
  draft.thought += "; " + draft.slots[thing] + " " + draft.slots[name];
  follow(kind, path[asked], draft);
  kind.answer.append(draft.slots, draft.answer);
}

// A fixed answer for any values of the slots.
void fixed(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const int slots = static_cast<int>(draft.slots.size());
  for (int slot = kWordSlots; slot < slots; ++slot) draft.slots[slot] = draw.one_of(kind.list(slot));
  draft.slots[kWord]  = made_up_word(draw, 3, kMaxItems);
  draft.slots[kN]     = std::to_string(draw.below(100));
  draft.slots[kOther] = std::to_string(draw.below(100));
  kind.answer.append(draft.slots, draft.answer);
}

}  // namespace fathom::model
