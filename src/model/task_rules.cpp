#include "model/task_rules.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fathom::model {
namespace {

constexpr int kDigits     = 4;  // of numbers to compare
constexpr int kListDigits = 3;  // of numbers in lists

std::string text(int number) { return std::to_string(number); }

// Pads with leading zeros, so that digits of the same place are at equal distances, which suits attention.
std::string padded(int number, int digits) {
  std::string zeros = text(number);
  zeros.insert(0, std::max<int>(0, digits - static_cast<int>(zeros.size())), '0');
  return zeros;
}

int power_of_ten(int digits) {
  int power = 1;
  while (digits-- > 0) power *= 10;
  return power;
}

// Draws long numbers more often than short ones.
int number(Draw& draw, int max_digits) {
  const int digits = std::max(draw.between(1, max_digits), draw.between(1, max_digits));
  return draw.between(digits == 1 ? 0 : power_of_ten(digits - 1), power_of_ten(digits) - 1);
}

// Half of the time draws a number that differs from `a` in the lower digits only, so that comparing needs all
// digits.
int number_near(Draw& draw, int a, int max_digits) {
  if (draw.chance(50)) return number(draw, max_digits);
  const int lower = power_of_ten(draw.between(1, max_digits - 1));
  return a / lower * lower + draw.below(lower);
}

template <class T, class TextOf>
std::string joined(const T& items, const char* separator, TextOf text_of) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += separator;
    all += text_of(item);
  }
  return all;
}

std::string listed(const std::vector<int>& numbers) { return joined(numbers, ", ", text); }
std::string listed(const std::vector<std::string>& words) {
  return joined(words, ", ", [](const std::string& word) -> const std::string& { return word; });
}
std::string columns(const std::vector<int>& numbers, int digits) {
  return joined(numbers, " ", [digits](int number) { return padded(number, digits); });
}

void sum(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const int a = number(draw, kind.max), b = number(draw, kind.max);
  draft.slots[kA] = text(a);
  draft.slots[kB] = text(b);
  draft.answer    = text(a + b);
  draft.thought   = padded(a, kind.max) + "+" + padded(b, kind.max) + ":";
  for (int column = 0, carry = 0, unit = 1; column < kind.max; ++column, unit *= 10) {
    const int x = a / unit % 10, y = b / unit % 10;
    draft.thought += " " + text(x) + "+" + text(y) + "+" + text(carry) + "=" + padded(x + y + carry, 2);
    carry = (x + y + carry) / 10;
  }
}

char relation(int a, int b) { return a < b ? '<' : a > b ? '>' : '='; }

std::string compared(int a, int b, int digits) {
  return padded(a, digits) + relation(a, b) + padded(b, digits);
}

// The thought subtracts the smaller from the larger, column by column. Where a column borrows, a 1 for the
// ten precedes its digit.
void difference(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  int a = number(draw, kind.max), b = number(draw, kind.max);
  if (a < b && draw.chance(75)) std::swap(a, b);
  draft.slots[kA] = text(a);
  draft.slots[kB] = text(b);
  draft.answer    = text(a - b);
  draft.thought   = compared(a, b, kind.max) + ":";
  const int large = std::max(a, b), small = std::min(a, b);
  for (int column = 0, borrowed = 0, unit = 1; column < kind.max; ++column, unit *= 10) {
    const int x = large / unit % 10, y = small / unit % 10;
    const int ten = x - y - borrowed < 0 ? 1 : 0;
    draft.thought += " " + text(ten) + text(x) + "-" + text(y) + "-" + text(borrowed) + "=" +
                     text(10 * ten + x - y - borrowed);
    borrowed = ten;
  }
}

void pick_number(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const int count = draw.between(kind.min, kind.max);
  std::vector<int> numbers{number(draw, kDigits)};
  while (static_cast<int>(numbers.size()) < count) {
    const int next = number_near(draw, numbers.back(), kDigits);
    if (std::ranges::find(numbers, next) == numbers.end()) numbers.push_back(next);
  }
  const auto [smallest, largest] = std::ranges::minmax(numbers);
  const int picked               = kind.way == Way::largest ? largest : smallest;
  draft.slots[kA]                = text(numbers[0]);
  draft.slots[kB]                = text(numbers[1]);
  draft.slots[kList]             = listed(numbers);
  draft.answer                   = text(picked);
  draft.thought                  = count == 2 ? compared(numbers[0], numbers[1], kDigits)
                                              : columns(numbers, kDigits) + ": " + padded(picked, kDigits);
}

std::pair<int, int> two_numbers(Draw& draw, CaseDraft& draft, int percent_equal) {
  const int a     = number(draw, kDigits);
  const int b     = draw.chance(percent_equal) ? a : number_near(draw, a, kDigits);
  draft.slots[kA] = text(a);
  draft.slots[kB] = text(b);
  draft.thought   = compared(a, b, kDigits);
  return {a, b};
}

void yes_no(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const auto [a, b] = two_numbers(draw, draft, kind.way == Way::equal ? 45 : 5);
  const bool holds  = kind.way == Way::equal ? a == b : kind.way == Way::larger ? a > b : a < b;
  draft.answer      = holds ? "yes" : "no";
}

void sign(const TaskKind&, Draw& draw, CaseDraft& draft) {
  const auto [a, b] = two_numbers(draw, draft, 15);
  draft.answer      = relation(a, b);
}

std::vector<int> different_numbers(const TaskKind& kind, Draw& draw) {
  const int count  = draw.between(kind.min, kind.max);
  const int digits = draw.between(kListDigits - 1, kListDigits);
  std::vector<int> numbers;
  while (static_cast<int>(numbers.size()) < count) {
    const int next = number(draw, digits);
    if (std::ranges::find(numbers, next) == numbers.end()) numbers.push_back(next);
  }
  return numbers;
}

void sort_numbers(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  std::vector<int> numbers = different_numbers(kind, draw);
  draft.slots[kList]       = listed(numbers);
  draft.thought            = columns(numbers, kListDigits) + ": ";
  std::ranges::sort(numbers);
  if (kind.way == Way::descending) std::ranges::reverse(numbers);
  draft.thought += columns(numbers, kListDigits);
  draft.answer = listed(numbers);
}

std::vector<std::string> different_words(const TaskKind& kind, Draw& draw, int count) {
  const std::vector<std::string>& list = kind.list(kind.source);
  const Picks picks                    = different(draw, static_cast<int>(list.size()), count);
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.push_back(list[picks.of[i]]);
  return words;
}

void sort_words(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  std::vector<std::string> words = different_words(kind, draw, draw.between(kind.min, kind.max));
  draft.slots[kList]             = listed(words);
  std::ranges::sort(words);
  draft.answer = listed(words);
}

void reverse_words(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  std::vector<std::string> words = different_words(kind, draw, draw.between(kind.min, kind.max));
  draft.slots[kList]             = listed(words);
  std::ranges::reverse(words);
  draft.answer = listed(words);
}

// The thought numbers the list forwards, then backwards.
void reverse_numbers(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  std::vector<int> numbers = different_numbers(kind, draw);
  const int count          = static_cast<int>(numbers.size());
  draft.slots[kList]       = listed(numbers);
  for (int i = 0; i < count; ++i)
    draft.thought += (i ? " " : "") + text(i + 1) + ":" + padded(numbers[i], kListDigits);
  draft.thought += ",";
  for (int i = count; i-- > 0;) draft.thought += " " + text(i + 1) + ":" + padded(numbers[i], kListDigits);
  std::ranges::reverse(numbers);
  draft.answer = listed(numbers);
}

std::string known_or_made_up_word(const TaskKind& kind, Draw& draw) {
  return draw.chance(50) ? draw.one_of(kind.list(kind.source)) : made_up_word(draw, kind.min, kind.max);
}

void reverse_letters(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::string word = known_or_made_up_word(kind, draw);
  const int letters      = static_cast<int>(word.size());
  draft.slots[kWord]     = word;
  for (int i = 0; i < letters; ++i) draft.thought += (i ? " " : "") + text(i + 1) + word[i];
  draft.thought += ",";
  for (int i = letters; i-- > 0;) draft.thought += " " + text(i + 1) + word[i];
  draft.answer.assign(word.rbegin(), word.rend());
}

// The thought is like "1b0 2a1 3n1": each letter between its position and the count so far.
template <class Counted>
void count_in_word(const std::string& word, CaseDraft& draft, Counted counted) {
  draft.slots[kWord] = word;
  int count = 0, place = 0;
  for (const char letter : word) {
    if (counted(letter)) ++count;
    draft.thought += (place ? " " : "") + text(place + 1) + letter + text(count);
    ++place;
  }
  draft.answer = text(count);
}

void count_letter(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::string word = known_or_made_up_word(kind, draw);
  const char letter      = draw.chance(75) ? word[draw.below(static_cast<int>(word.size()))]
                                           : static_cast<char>('a' + draw.below(26));
  draft.slots[kLetter]   = letter;
  count_in_word(word, draft, [letter](char other) { return other == letter; });
}

void count_letters(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::string word = known_or_made_up_word(kind, draw);
  draft.slots[kWord]     = word;
  draft.answer           = text(static_cast<int>(word.size()));
  for (size_t i = 0; i < word.size(); ++i)
    draft.thought += (i ? " " : "") + text(static_cast<int>(i) + 1) + word[i];
}

void count_vowels(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  count_in_word(known_or_made_up_word(kind, draw), draft,
                [](char letter) { return std::string_view("aeiou").find(letter) != std::string_view::npos; });
}

void count_item(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::vector<std::string> words = different_words(kind, draw, 4);  // words[0] is counted
  const int items                      = draw.between(kind.min, kind.max);
  std::vector<std::string> list;
  int count = 0;
  // A space before each word, as in the list, because words with and without a space are different tokens.
  draft.thought = " " + words[0] + ":";
  for (int i = 0; i < items; ++i) {
    list.push_back(words[draw.chance(40) ? 0 : draw.between(1, 3)]);
    if (list.back() == words[0]) ++count;
    draft.thought += (i ? ", " : " ") + list.back() + " " + text(count);
  }
  draft.slots[kWord] = words[0];
  draft.slots[kList] = listed(list);
  draft.answer       = text(count);
}

void count_words(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::vector<std::string> words = different_words(kind, draw, draw.between(kind.min, kind.max));
  for (size_t i = 0; i < words.size(); ++i)
    draft.thought += (i ? ", " : "") + text(static_cast<int>(i) + 1) + " " + words[i];
  draft.slots[kList] = listed(words);
  draft.answer       = text(static_cast<int>(words.size()));
}

// Steps through a cyclic list: days of the week, months.
void cycle(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const std::vector<std::string>& list = kind.list(kind.source);
  const int size = static_cast<int>(list.size()), step = kind.way == Way::after ? 1 : size - 1;
  const int n = draw.between(kind.min, kind.max), rest = n % size;
  int at                   = draw.below(size);
  draft.slots[kind.source] = list[at];
  draft.slots[kN]          = text(n);
  if (n >= size) draft.thought = text(n) + "-" + text(n - rest) + "=" + text(rest) + ": ";
  for (int i = 0; i <= rest; ++i) {
    draft.thought += (i ? ", " : "") + text(i) + " " + list[at];
    draft.answer = list[at];
    at           = (at + step) % size;
  }
}

constexpr int kFebruary = 1;
// Days by month from January; February without the leap day.
constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

std::string date(const TaskKind& kind, int day, int month) {
  return text(day) + " " + kind.list(kind.source)[month];
}

void month_length(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  int month = draw.below(11);  // never February
  if (month >= kFebruary) ++month;
  draft.slots[kind.source] = kind.list(kind.source)[month];
  draft.answer             = text(kDays[month]);
}

// At most into the next or the previous month, and never across the end of February.
void date_shift(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const bool after = kind.way == Way::after;
  int month = 0, day = 0, n = 0, there = 0, shorter = 0;  // `shorter`: the month whose end is crossed
  do {
    month   = draw.below(12);
    day     = draw.between(1, kDays[month]);
    n       = draw.between(1, kind.max);
    there   = after ? day + n : day - n;
    shorter = after ? month : (month + 11) % 12;
  } while (shorter == kFebruary && (there < 1 || there > kDays[month]));
  draft.slots[kDate] = date(kind, day, month);
  draft.slots[kN]    = text(n);
  draft.thought      = text(day) + (after ? "+" : "-") + text(n) + "=" + text(there);
  if (there >= 1 && there <= kDays[month]) {
    draft.answer = date(kind, there, month);
    draft.thought += ", " + kind.list(kind.source)[month] + " has " + text(kDays[month]);
  } else {
    const int days  = kDays[shorter];
    const int moved = after ? there - days : days + there;
    draft.answer    = date(kind, moved, after ? (month + 1) % 12 : shorter);
    draft.thought += ", " + kind.list(kind.source)[shorter] + " has " + text(days) + ", ";
    draft.thought +=
        (after ? text(there) + "-" + text(days) : text(days) + "-" + text(-there)) + "=" + text(moved);
  }
}

void days_between(const TaskKind& kind, Draw& draw, CaseDraft& draft) {
  const int month = draw.below(12);
  int first       = draw.between(1, kDays[month]);
  if (month != kFebruary && draw.chance(50)) {
    const int next = (month + 1) % 12, second = draw.between(1, kDays[next]), rest = kDays[month] - first;
    draft.slots[kDate]  = date(kind, first, month);
    draft.slots[kOther] = date(kind, second, next);
    draft.answer        = text(rest + second);
    draft.thought = kind.list(kind.source)[month] + " has " + text(kDays[month]) + ", " + text(kDays[month]) +
                    "-" + text(first) + "=" + text(rest) + ", " + text(rest) + "+" + text(second) + "=" +
                    draft.answer;
    return;
  }
  int second = draw.between(1, kDays[month]);
  if (second < first) std::swap(first, second);
  draft.slots[kDate]  = date(kind, first, month);
  draft.slots[kOther] = date(kind, second, month);
  draft.answer        = text(second - first);
  draft.thought       = text(second) + "-" + text(first) + "=" + draft.answer;
}

}  // namespace

bool Phrase::uses(int slot) const {
  return std::ranges::any_of(parts, [slot](const Part& part) { return part.slot == slot; });
}

int TaskKind::slot(std::string_view list) const {
  return kWordSlots + static_cast<int>(std::ranges::find(*words, list, &WordList::name) - words->begin());
}

void Phrase::append(const Slots& slots, std::string& out) const {
  for (const Part& part : parts) {
    out += part.text;
    if (part.slot >= 0) out += slots[part.slot];
  }
}

std::string made_up_word(Draw& draw, int min_letters, int max_letters) {
  constexpr std::string_view kVowels = "aeiou", kConsonants = "bcdfghjklmnpqrstvwxyz";
  std::string word;
  bool vowel = draw.chance(40);
  for (int left = draw.between(min_letters, max_letters); left > 0; --left) {
    const std::string_view letters = vowel ? kVowels : kConsonants;
    word += letters[draw.below(static_cast<int>(letters.size()))];
    vowel = draw.chance(25) ? vowel : !vowel;
  }
  return word;
}

Picks different(Draw& draw, int n, int count) {
  Picks picks{{}, 0};
  while (picks.count < count) {
    const int next = draw.below(n);
    if (std::find(picks.of, picks.of + picks.count, next) == picks.of + picks.count)
      picks.of[picks.count++] = next;
  }
  return picks;
}

const RuleTraits* find_rule(std::string_view name) {
  static const std::vector<RuleTraits> rules = {
      {"sum", sum, {}, 1, 4, 0, {}, false},
      {"difference", difference, {}, 1, 4, 0, {}, false},
      {"pick_number", pick_number, {Way::largest, Way::smallest}, 2, kMaxItems, 0, {}, false},
      {"yes_no", yes_no, {Way::larger, Way::smaller, Way::equal}, 0, 0, 0, {}, false},
      {"sign", sign, {}, 0, 0, 0, {}, false},
      {"sort_numbers", sort_numbers, {Way::ascending, Way::descending}, 2, kMaxItems, 0, {}, false},
      {"sort_words", sort_words, {}, 2, kMaxItems, kMaxItems, {}, false},
      {"reverse_words", reverse_words, {}, 2, kMaxItems, kMaxItems, {}, false},
      {"reverse_numbers", reverse_numbers, {}, 2, kMaxItems, 0, {}, false},
      {"reverse_letters", reverse_letters, {}, 1, kMaxItems, 1, {}, false},
      {"count_letter", count_letter, {}, 1, kMaxItems, 1, {}, false},
      {"count_letters", count_letters, {}, 1, kMaxItems, 1, {}, false},
      {"count_vowels", count_vowels, {}, 1, kMaxItems, 1, {}, false},
      {"count_item", count_item, {}, 1, kMaxItems, 4, {}, false},
      {"count_words", count_words, {}, 1, kMaxItems, kMaxItems, {}, false},
      {"cycle", cycle, {Way::after, Way::before}, 1, 99, 2, {}, false},
      {"month_length", month_length, {}, 0, 0, 12, {}, false},
      {"date_shift", date_shift, {Way::after, Way::before}, 1, 28, 12, {}, false},
      {"days_between", days_between, {}, 0, 0, 12, {}, false},
      {"facts", facts, {}, 1, kMaxItems, 0, {}, true},
      {"moves", moves, {Way::now, Way::before}, 0, 0, 0, {"name", "place"}, true},
      {"carried", carried, {}, 0, 0, 0, {"name", "place", "thing"}, true},
      {"fixed", fixed, {}, 0, 0, 0, {}, false}};
  const auto found = std::ranges::find(rules, name, &RuleTraits::name);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace fathom::model
