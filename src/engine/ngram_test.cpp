#include "engine/ngram.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::engine {
namespace {

using Tokens = std::vector<model::TokenId>;

Tokens draft(const Tokens& tokens, int64_t count) {
  const auto view = ngram_draft(tokens, count);
  return {view.begin(), view.end()};
}

TEST(NgramDraft, IsWhatFollowedTheLongestEndingLast) {
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 3), (Tokens{3, 4, 1}));
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 1), (Tokens{3}));
  // The latest of equals; a longer match before a later one.
  EXPECT_EQ(draft({1, 2, 3, 1, 2, 4, 1, 2}, 1), (Tokens{4}));
  EXPECT_EQ(draft({9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, 1), (Tokens{3}));
  // Four tokens are long enough.
  EXPECT_EQ(draft({7, 1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7, 1, 2, 3, 4}, 1), (Tokens{6}));
  // No more than there is; it may overlap the ending itself.
  EXPECT_EQ(draft({5, 5, 5}, 4), (Tokens{5}));
}

TEST(NgramDraft, IsEmptyWhereNothingIsKnown) {
  for (const Tokens& tokens : {Tokens{}, Tokens{1}, Tokens{1, 1}, Tokens{1, 2, 3, 4}, Tokens{1, 2, 3, 2}})
    EXPECT_EQ(draft(tokens, 4), Tokens{});
  EXPECT_EQ(draft({1, 2, 1, 2}, 0), Tokens{});
}

}  // namespace
}  // namespace fathom::engine
