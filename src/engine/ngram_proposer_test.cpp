#include "engine/ngram_proposer.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::engine {
namespace {

using Tokens = std::vector<model::TokenId>;

Tokens draft(const Tokens& tokens, int64_t count) {
  const auto view = ngram_match(tokens, count).following;
  return {view.begin(), view.end()};
}

TEST(NgramMatch, FollowsTheLatestMatchOfTheLongestSuffix) {
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 3), (Tokens{3, 4, 1}));
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 1), (Tokens{3}));
  // Prefers the latest of equally long matches, and a longer match to a later one.
  EXPECT_EQ(draft({1, 2, 3, 1, 2, 4, 1, 2}, 1), (Tokens{4}));
  EXPECT_EQ(draft({9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, 1), (Tokens{3}));
  // Matches at most four tokens.
  EXPECT_EQ(draft({7, 1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7, 1, 2, 3, 4}, 1), (Tokens{6}));
  // Returns no more tokens than follow; the match may overlap the suffix.
  EXPECT_EQ(draft({5, 5, 5}, 4), (Tokens{5}));
}

TEST(NgramMatch, IsEmptyWithoutAMatch) {
  for (const Tokens& tokens : {Tokens{}, Tokens{1}, Tokens{1, 1}, Tokens{1, 2, 3, 4}, Tokens{1, 2, 3, 2}})
    EXPECT_EQ(draft(tokens, 4), Tokens{});
  EXPECT_EQ(draft({1, 2, 1, 2}, 0), Tokens{});
}

}  // namespace
}  // namespace fathom::engine
