#include "model/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fathom::model {
namespace {

const TaskGrammar& grammar() {
  static const TaskGrammar grammar = [] {
    const std::filesystem::path file(FATHOM_SOURCE_TREE "/models/tiny/tasks.toml");
    auto read = TaskGrammar::load(file.string());
    if (!read) throw std::runtime_error(read.error().message);
    return std::move(read).value();
  }();
  return grammar;
}

std::vector<int> numbers_in(const std::string& text) {
  static const std::regex number("[0-9]+");
  std::vector<int> numbers;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), number); at != std::sregex_iterator(); ++at)
    numbers.push_back(std::stoi(at->str()));
  return numbers;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(separator, from)) != std::string::npos; from = at + separator.size())
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The list in a prompt: from the first word before a comma to the last word after one.
std::vector<std::string> list_in(const std::string& prompt) {
  static const std::regex list("[a-z0-9]+(, [a-z0-9]+)+");
  std::smatch found;
  return std::regex_search(prompt, found, list) ? split(found.str(), ", ") : std::vector<std::string>{};
}

void for_cases(const char* name, int count, const std::function<void(const TaskCase&)>& check) {
  const auto task = grammar().find(name);
  ASSERT_TRUE(task) << task.error().message;
  for (int index = 0; index < count; ++index) {
    const TaskCase made = make_case(**task, 11, index);
    SCOPED_TRACE(made.prompt + " -> " + made.thought + " -> " + made.answer);
    check(made);
    if (::testing::Test::HasFailure()) return;
  }
}

// Computes the answers from the prompts alone, by independent code.

TEST(Tasks, AdditionAddsWhatThePromptSays) {
  for_cases("addition", 3000, [](const TaskCase& made) {
    const std::vector<int> numbers = numbers_in(made.prompt);
    ASSERT_EQ(numbers.size(), 2u);
    EXPECT_EQ(made.answer, std::to_string(numbers[0] + numbers[1]));
    int value = 0, unit = 1;
    const auto columns = split(made.thought, "=");
    for (size_t i = 1; i < columns.size(); ++i, unit *= 10)
      value += std::stoi(columns[i].substr(i + 1 == columns.size() ? 0 : 1, 2)) * unit;
    EXPECT_EQ(value, numbers[0] + numbers[1]) << "the columns' digits are the sum's";
  });
}

TEST(Tasks, SubtractionSubtractsWhatThePromptSays) {
  int negative = 0;
  for_cases("subtraction", 3000, [&](const TaskCase& made) {
    std::vector<int> numbers = numbers_in(made.prompt);
    ASSERT_EQ(numbers.size(), 2u);
    if (has(made.prompt, " from "))
      std::swap(numbers[0], numbers[1]);  // "Subtract b from a", "take b from a"
    EXPECT_EQ(made.answer, std::to_string(numbers[0] - numbers[1]));
    negative += numbers[0] < numbers[1];
    int value = 0, unit = 1;
    const auto columns = split(made.thought, "=");
    for (size_t i = columns.size() - 4; i < columns.size(); ++i, unit *= 10)
      value += (columns[i][0] - '0') * unit;
    EXPECT_EQ(value, std::abs(numbers[0] - numbers[1]));
  });
  EXPECT_GT(negative, 100);
}

TEST(Tasks, ComparisonComparesWhatThePromptSays) {
  std::map<std::string, int> answers;
  for_cases("comparison", 5000, [&](const TaskCase& made) {
    const std::vector<int> numbers = numbers_in(made.prompt);
    ASSERT_GE(numbers.size(), 2u);
    const int a = numbers[0], b = numbers[1];
    const std::string& prompt = made.prompt;
    if (has(prompt, "or =") || has(prompt, "> or")) {
      EXPECT_EQ(made.answer, a < b ? "<" : a > b ? ">" : "=");
    } else if (prompt.starts_with("Is ") || prompt.starts_with("Are ")) {
      const bool equal = has(prompt, "equal") || has(prompt, "same");
      const bool less  = has(prompt, "smaller") || has(prompt, "less") || has(prompt, "<");
      EXPECT_EQ(made.answer, (equal ? a == b : less ? a < b : a > b) ? "yes" : "no");
    } else {
      const bool least = has(prompt, "small") || has(prompt, "less");
      EXPECT_EQ(made.answer, std::to_string(least ? std::ranges::min(numbers) : std::ranges::max(numbers)));
    }
    if (made.answer.size() < 4) ++answers[made.answer];
  });
  for (const char* answer : {"yes", "no", "<", ">", "="}) EXPECT_GT(answers[answer], 30) << answer;
}

TEST(Tasks, SortingSortsTheList) {
  for_cases("sorting", 3000, [](const TaskCase& made) {
    std::vector<std::string> list = list_in(made.prompt);
    ASSERT_GE(list.size(), 3u);
    const bool numbers = std::isdigit(static_cast<unsigned char>(list[0][0]));
    std::ranges::sort(list, [&](const std::string& a, const std::string& b) {
      return numbers ? std::stoi(a) < std::stoi(b) : a < b;
    });
    if (has(made.prompt, "descending") || has(made.prompt, "large to small")) std::ranges::reverse(list);
    EXPECT_EQ(split(made.answer, ", "), list);
  });
}

TEST(Tasks, ReversingReversesTheListOrTheWord) {
  std::set<size_t> lengths;
  for_cases("reversing", 3000, [&](const TaskCase& made) {
    std::vector<std::string> list = list_in(made.prompt);
    if (!list.empty()) {
      std::ranges::reverse(list);
      EXPECT_EQ(split(made.answer, ", "), list);
      return;
    }
    EXPECT_TRUE(has(made.prompt, std::string(made.answer.rbegin(), made.answer.rend())));
    lengths.insert(made.answer.size());
  });
  EXPECT_EQ(*lengths.begin(), 3u);
  EXPECT_EQ(*lengths.rbegin(), 9u);
}

TEST(Tasks, CountingCountsLettersWordsAndItems) {
  static const std::regex letter_of("(?:letters?|does) ([a-z]) (?:occur|are|is|in)"),
      word_of("(?:in|does|of|word) \"?([a-z]{3,})\"?(?: have)?[?.]$"),
      item("(?:times does|often is|Count|is there) ([a-z]{3,})");
  int letters = 0, items = 0;
  for_cases("counting", 4000, [&](const TaskCase& made) {
    const std::string& prompt           = made.prompt;
    const std::vector<std::string> list = list_in(prompt);
    std::smatch word, letter;
    if (std::regex_search(prompt, letter, letter_of)) {
      ++letters;
      const size_t at        = prompt.find_last_of(' ');
      const std::string last = prompt.substr(at + 1);
      EXPECT_EQ(made.answer, std::to_string(std::ranges::count(last, letter.str(1)[0])));
    } else if (!list.empty() && !has(prompt, "How many words are") && !has(prompt, "Count these") &&
               !has(prompt, "How many items") && !has(prompt, "How long")) {
      ++items;
      ASSERT_TRUE(std::regex_search(prompt, word, item));
      EXPECT_EQ(made.answer, std::to_string(std::ranges::count(list, word.str(1))));
    } else if (!list.empty()) {
      EXPECT_EQ(made.answer, std::to_string(list.size()));
    } else {
      ASSERT_TRUE(std::regex_search(prompt, word, word_of) ||
                  std::regex_search(prompt, word, std::regex("word ([a-z]+)\\?$")));
      const std::string text = word.str(1);
      const auto vowel = [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; };
      const auto expected =
          has(prompt, "vowels") ? std::ranges::count_if(text, vowel) : static_cast<int64_t>(text.size());
      EXPECT_EQ(made.answer, std::to_string(expected));
    }
  });
  EXPECT_GT(letters, 500);
  EXPECT_GT(items, 300);
}

constexpr std::array kDays   = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
constexpr std::array kMonths = {"January", "February", "March",     "April",   "May",      "June",
                                "July",    "August",   "September", "October", "November", "December"};

// Index of the name that occurs first in the text; -1: none.
template <size_t N>
int first_of(const std::array<const char*, N>& names, const std::string& text) {
  int best       = -1;
  size_t nearest = std::string::npos;
  for (size_t i = 0; i < N; ++i)
    if (const size_t at = text.find(names[i]); at < nearest) nearest = at, best = static_cast<int>(i);
  return best;
}

// By std::chrono's calendar, in a leap year and in a common year.
TEST(Tasks, DatesAreTheCalendars) {
  using namespace std::chrono;
  static const std::regex date("([0-9]+) ([A-Z][a-z]+)");
  const auto is_before = [](const std::string& prompt) {
    return has(prompt, "before") || has(prompt, "ago") || has(prompt, "yesterday");
  };
  const auto read = [](const std::smatch& match, int year_number) {
    const auto month_of = static_cast<unsigned>(first_of(kMonths, match.str(2)) + 1);
    return sys_days(year(year_number) / month(month_of) / day(std::stoi(match.str(1))));
  };
  for_cases("dates", 5000, [&](const TaskCase& made) {
    const std::string& prompt = made.prompt;
    std::smatch match;
    if (std::regex_search(prompt, match, date) && first_of(kMonths, match.str(2)) >= 0) {
      for (const int year_number : {2023, 2024}) {
        const sys_days from    = read(match, year_number);
        const std::string rest = match.suffix();
        std::smatch other;
        if (std::regex_search(rest, other, date) && first_of(kMonths, other.str(2)) >= 0) {
          sys_days to = read(other, year_number);
          if (to < from) to = read(other, year_number + 1);
          EXPECT_EQ(made.answer, std::to_string((to - from).count()));
          continue;
        }
        const std::string outside = std::string(match.prefix()) + rest;
        ASSERT_EQ(numbers_in(outside).size(), 1u);
        const days n(numbers_in(outside)[0]);
        const year_month_day to(is_before(prompt) ? from - n : from + n);
        EXPECT_EQ(made.answer, std::to_string(static_cast<unsigned>(to.day())) + " " +
                                   kMonths[static_cast<unsigned>(to.month()) - 1]);
      }
      return;
    }
    const std::vector<int> numbers = numbers_in(prompt);
    const int n                    = (numbers.empty() ? 1 : numbers[0]) * (is_before(prompt) ? -1 : 1);
    if (const int from = first_of(kDays, prompt); from >= 0) {
      EXPECT_EQ(made.answer, kDays[((from + n) % 7 + 7) % 7]);
    } else if (const int month_of = first_of(kMonths, prompt); has(prompt, "month")) {
      EXPECT_EQ(made.answer, kMonths[(month_of + n + 12) % 12]);
    } else {
      ASSERT_NE(month_of, 1) << "February's length depends on the year";
      const auto last = year(2023) / month(static_cast<unsigned>(month_of + 1)) / std::chrono::last;
      EXPECT_EQ(made.answer, std::to_string(static_cast<unsigned>(year_month_day(last).day())));
    }
  });
}

TEST(Tasks, TheAnswerToAStoryIsInTheStory) {
  static const std::regex goes("([A-Z][a-z]+) (?:went to|walked to|ran to|is in) the ([a-z]+)$"),
      takes("([A-Z][a-z]+) (?:took|picked up|found|has) the ([a-z]+)$");
  int moved = 0, carried = 0, before = 0;
  for_cases("stories", 5000, [&](const TaskCase& made) {
    const size_t end           = made.prompt.find_last_of('.');
    const std::string story    = made.prompt.substr(0, end + 1);
    const std::string question = made.prompt.substr(end + 2);
    for (const std::string& word : split(made.answer, " ")) EXPECT_TRUE(has(story, word)) << word;
    std::map<std::string, std::vector<std::string>> places;
    std::map<std::string, std::string> carrier;
    for (const std::string& sentence : split(story.substr(0, story.size() - 1), ". ")) {
      std::smatch match;
      if (std::regex_search(sentence, match, goes)) places[match.str(1)].push_back(match.str(2));
      if (std::regex_search(sentence, match, takes)) carrier[match.str(2)] = match.str(1);
    }
    std::smatch match;
    if (std::regex_search(question, match, std::regex("^Where was ([A-Z][a-z]+) before the ([a-z]+)"))) {
      ++before;
      const auto& path = places[match.str(1)];
      const auto later = std::ranges::find(path, match.str(2));
      ASSERT_TRUE(later != path.end() && later != path.begin());
      EXPECT_EQ(made.answer, *(later - 1));
    } else if (std::regex_search(question, match, std::regex("^Where is ([A-Z][a-z]+)"))) {
      ++moved;
      ASSERT_FALSE(places[match.str(1)].empty());
      EXPECT_EQ(made.answer, places[match.str(1)].back());
    } else if (std::regex_search(question, match, std::regex("^Where is the ([a-z]+)")) &&
               carrier.contains(match.str(1))) {
      ++carried;
      EXPECT_EQ(made.answer, places[carrier[match.str(1)]].back());
    }
  });
  EXPECT_GT(moved, 300);
  EXPECT_GT(carried, 300);
  EXPECT_GT(before, 150);
}

TEST(Tasks, ACaseIsAFunctionOfTaskSeedAndIndex) {
  for (const Task& task : grammar().tasks()) {
    const TaskCase once = make_case(task, 5, 123456789012), again = make_case(task, 5, 123456789012);
    EXPECT_EQ(once.prompt, again.prompt);
    EXPECT_EQ(once.thought, again.thought);
    EXPECT_EQ(once.answer, again.answer);
    int same_seed = 0, same_index = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      same_seed += make_case(task, 5, i).prompt == make_case(task, 5, i + 1).prompt;
      same_index += make_case(task, i, 7).prompt == make_case(task, i + 1, 7).prompt;
    }
    EXPECT_LT(same_seed, 20) << task.name;
    EXPECT_LT(same_index, 20) << task.name;
  }
}

// Only the prompt decides whether a case is held out, and training skips held-out cases.
TEST(Tasks, EveryMeasuredTaskHasTwoThousandHeldOutPrompts) {
  int measured = 0;
  for (const Task& task : grammar().tasks()) {
    if (!task.measured) continue;
    ++measured;
    const auto cases = held_out(task, 2000, 3);
    ASSERT_TRUE(cases) << cases.error().message;
    std::set<std::string> prompts;
    for (const TaskCase& made : *cases) {
      EXPECT_TRUE(is_held_out(made.prompt));
      prompts.insert(made.prompt);
    }
    EXPECT_EQ(prompts.size(), 2000u) << task.name;
    int64_t out = 0;
    for (uint64_t index = 0; index < 16000; ++index) out += is_held_out(make_case(task, 4, index).prompt);
    EXPECT_NEAR(static_cast<double>(out), 1000, 250) << task.name;
  }
  EXPECT_EQ(measured, 8);
}

TEST(Tasks, HeldOutTakesAnyNumberAndPrefersTheFirst) {
  const Task& task = **grammar().find("stories");
  EXPECT_TRUE(held_out(task, 0, 1)->empty());
  const auto one = held_out(task, 1, 1), seven = held_out(task, 7, 1);
  EXPECT_EQ(one->size(), 1u);
  EXPECT_EQ(seven->size(), 7u);
  EXPECT_EQ(one->front().prompt, seven->front().prompt);
}

std::string why(const std::string& toml) {
  const auto read = TaskGrammar::parse(toml, "t.toml");
  return read ? "" : read.error().message;
}

TEST(Tasks, GrammarErrorsNameThePlace) {
  const std::string words = "system_prompt = 'Hi'\n[words]\nday = ['a', 'b']\n";
  const std::string task  = words + "[[task]]\nname = 't'\n[[task.kind]]\n";
  EXPECT_EQ(why(task + "rule = 'sum'\nmax = 2\nphrasings = ['{a} {b}']"), "");
  EXPECT_TRUE(has(why("x ="), "t.toml, line 1"));
  EXPECT_TRUE(has(why("[words]\nday = ['a']"), "system_prompt"));
  EXPECT_TRUE(has(why(words), "[[task]]"));
  EXPECT_TRUE(has(why(task + "rule = 'sun'\nmax = 2\nphrasings = ['x']"), "no rule 'sun'"));
  EXPECT_TRUE(
      has(why(task + "rule = 'sum'\nmax = 5\nphrasings = ['x']"), "'max' must be an integer from 1 to 4"));
  EXPECT_TRUE(has(why(task + "rule = 'sum'\nphrasings = ['x']"), "'max'"));
  EXPECT_TRUE(has(why(task + "rule = 'sum'\nmax = 2"), "phrasings"));
  EXPECT_TRUE(has(why(task + "rule = 'sum'\nmax = 2\nphrasings = ['{nobody}']"), "no list 'nobody'"));
  EXPECT_TRUE(has(why(task + "rule = 'sum'\nmax = 2\nphrasings = ['{a']"), "lacks a }"));
  EXPECT_TRUE(has(why(task + "rule = 'cycle'\nway = 'up'\nmax = 2\nwords = 'day'\nphrasings = ['x']"),
                  "'up' is no way"));
  EXPECT_TRUE(has(why(task + "rule = 'month_length'\nwords = 'day'\nphrasings = ['x']"), "needs 12 words"));
  EXPECT_TRUE(
      has(why(task + "rule = 'facts'\nmax = 3\nsentences = ['{day}']\nphrasings = ['x']\nanswer = 'y'"),
          "needs 3 words"));
  EXPECT_TRUE(has(why(task + "rule = 'fixed'\nphrasings = ['x']"), "needs an 'answer'"));
  EXPECT_TRUE(has(TaskGrammar::load("/nowhere/tasks.toml").error().message, "/nowhere/tasks.toml"));
  EXPECT_TRUE(has(grammar().find("poetry").error().message, "addition, subtraction"));
}

TEST(Tasks, TooFewPromptsAreAnError) {
  const auto read = TaskGrammar::parse(
      "system_prompt = 'Hi'\n[words]\nday = ['a', 'b']\n[[task]]\nname = 't'\n[[task.kind]]\nrule = 'cycle'\n"
      "way = 'after'\nmax = 1\nwords = 'day'\nphrasings = ['{day}']",
      "t.toml");
  ASSERT_TRUE(read) << read.error().message;
  const auto cases = held_out(read->tasks()[0], 3, 1);
  ASSERT_FALSE(cases);
  EXPECT_TRUE(has(cases.error().message, "not 3")) << cases.error().message;
}

}  // namespace
}  // namespace fathom::model
