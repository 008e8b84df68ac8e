#include "engine/suffix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/suffix_proposer.h"

namespace fathom::engine {
namespace {

using Text = std::vector<model::TokenId>;

Text random_text(std::mt19937_64& random, int64_t size, uint64_t vocabulary) {
  Text text;
  for (int64_t i = 0; i < size; ++i) text.push_back(static_cast<model::TokenId>(random() % vocabulary));
  return text;
}

TEST(SequenceMatcher, FindsTheLongestMatchThatASearchFinds) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const Text text = random_text(random, static_cast<int64_t>(random() % 40), 2 + random() % 3);
    SequenceMatcher matcher;
    for (size_t size = 0; size <= text.size(); size += 1 + random() % 3) {
      const std::span<const model::TokenId> tokens(text.data(), size);
      matcher.extend(tokens);
      SequenceMatcher::Match best;  // the latest of the longest
      for (size_t end = 2; end < size; ++end) {
        size_t same = 0;
        while (same < std::min<size_t>(end, SequenceMatcher::kLongest) &&
               text[end - 1 - same] == text[size - 1 - same])
          ++same;
        if (same >= 2 && static_cast<int64_t>(same) >= best.length)
          best = {.end = static_cast<int64_t>(end), .length = static_cast<int64_t>(same)};
      }
      const auto found = matcher.longest(tokens);
      ASSERT_EQ(found.length, best.length);
      ASSERT_EQ(found.end, best.end);
    }
  }
}

// The reference counts all n-grams in maps.
TEST(SuffixIndex, DraftsTheLikeliestTokenAfterTheLongestKnownContext) {
  constexpr int64_t kDepth = 4;
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    SuffixIndex index(kDepth, 1 << 20);
    std::map<Text, std::map<model::TokenId, int>> after;
    std::map<Text, model::TokenId> latest;
    Text text;
    for (int part = 0; part < 3; ++part) {
      text = random_text(random, 5 + static_cast<int64_t>(random() % 60), 3);
      index.add(text, 0);
      for (size_t at = 1; at < text.size(); ++at)
        for (size_t n = 1; n <= std::min<size_t>(kDepth, at); ++n)
          ++after[Text(text.begin() + static_cast<int64_t>(at - n), text.begin() + static_cast<int64_t>(at))]
                 [text[at]];
    }
    const Text asked  = random_text(random, 10, 3);
    const Draft draft = index.continue_from(asked, 1);
    Text context;
    for (size_t n = 1; n <= kDepth; ++n)
      if (const Text longer(asked.end() - static_cast<int64_t>(n), asked.end()); after.contains(longer))
        context = longer;
    ASSERT_FALSE(context.empty());
    int most = 0;
    for (const auto& [token, count] : after[context]) most = std::max(most, count);
    if (draft.size() == 1) {
      EXPECT_EQ(after[context][draft.tokens[0]], most);
    }
  }
}

TEST(SuffixIndex, FollowsAFinishedTextToItsEnd) {
  SuffixIndex index(8, 1 << 16);
  index.add(Text{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0);
  index.add(Text{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0);
  EXPECT_EQ(index.continue_from(Text{42, 2, 3, 4, 5}, 15).tokens, (Text{6, 7, 8, 9}));  // as many as match
  EXPECT_EQ(index.continue_from(Text{2, 3, 4, 5}, 2).tokens, (Text{6, 7}));
  EXPECT_EQ(index.continue_from(Text{9}, 15).tokens, Text{});
  EXPECT_EQ(index.continue_from(Text{}, 15).tokens, Text{});
  // Tokens before `first` are a context and are not counted.
  SuffixIndex answers(8, 1 << 16);
  answers.add(Text{1, 2, 3, 4}, 2);
  EXPECT_EQ(answers.continue_from(Text{1, 2}, 1).tokens, Text{3});
  EXPECT_EQ(answers.continue_from(Text{1}, 1).tokens, Text{});
}

TEST(SuffixIndex, KeepsItsBoundAndTheNewestText) {
  constexpr int64_t kNodes = 4000;
  SuffixIndex index(8, kNodes);
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    index.add(random_text(random, 50, 1000), 0);
    ASSERT_LE(index.nodes(), kNodes);
  }
  EXPECT_LE(index.bytes(), 4 * kNodes * 24);
  const Text newest = random_text(random, 20, 1000);
  index.add(newest, 0);
  EXPECT_EQ(index.continue_from(std::span(newest).first(8), 1).tokens, Text{newest[8]});
}

struct Written {
  RequestId id;
  Text prompt, answer;
  std::string salt = "";

  template <class Use>
  auto as_sequence(Use&& use) const {
    Request request;
    request.prompt     = prompt;
    request.cache_salt = salt;
    Sequence sequence(id, std::move(request), Listener(), TimePoint());
    sequence.tokens.insert(sequence.tokens.end(), answer.begin(), answer.end());
    return use(sequence);
  }
};

TEST(SuffixProposer, DraftsFromFinishedAnswersExceptThoseOfASalt) {
  SuffixProposer proposer;
  const auto finish = [&](const Written& written) {
    written.as_sequence([&](const Sequence& sequence) { proposer.finished(sequence); });
  };
  const auto drafted = [&](const Written& written) {
    return written.as_sequence(
        [&](const Sequence& sequence) { return proposer.propose(sequence, 8).tokens; });
  };
  for (const RequestId id : {1, 2}) finish({id, {7}, {11, 12, 13, 14, 15, 16}});
  EXPECT_EQ(drafted({3, {7, 8, 11, 12}, {13}}), (Text{14, 15, 16}));
  EXPECT_EQ(drafted({4, {7, 8, 11, 12}, {13}, "mine"}), Text{});
  finish({5, {9}, {21, 22, 23, 24}, "mine"});
  EXPECT_EQ(drafted({6, {9}, {21, 22}}), Text{});
  // From the sequence's own text.
  EXPECT_EQ(drafted({7, {31, 32, 33, 34, 35}, {31, 32, 33}}), (Text{34, 35, 31}));
}

}  // namespace
}  // namespace fathom::engine
