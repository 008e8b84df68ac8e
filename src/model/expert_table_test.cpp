// Who computes an expert of a token. That ranks compute every one exactly once is in shard_test.cpp.
#include "model/expert_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/expect.h"

namespace fathom::model {
namespace {

std::vector<int32_t> chosen(const ExpertTable& table, int32_t position, std::vector<int32_t> experts) {
  std::vector<int32_t> ranks(experts.size(), -1);
  table.choose_ranks(0, position, experts, ranks);
  return ranks;
}

TEST(ExpertTable, AnExpertOfOneRankIsComputedThere) {
  const ExpertTable table(3, {{{2}, {0}, {1}, {2}}});
  for (const int32_t position : {0, 1, 1000})
    EXPECT_EQ(chosen(table, position, {3, 1, 2}), (std::vector<int32_t>{2, 0, 1}));
  EXPECT_TRUE(chosen(table, 0, {}).empty());
}

TEST(ExpertTable, ATokensReplicatedExpertsTakeReplicasInTurn) {
  const ExpertTable table(2, {{{0, 1}, {0, 1}, {0}, {0, 1}, {0, 1}}});
  for (int32_t position = 0; position < 100; ++position) {
    const auto ranks = chosen(table, position, {0, 2, 1, 4, 3});
    EXPECT_EQ(ranks[1], 0);
    EXPECT_NE(ranks[0], ranks[2]);
    EXPECT_EQ(ranks[0], ranks[3]);
    EXPECT_NE(ranks[3], ranks[4]);
  }
}

// Of consecutive tokens, and of every n-th, as in a text with a rhythm.
TEST(ExpertTable, ReplicasGetEqualSharesOfAText) {
  for (const int32_t replicas : {2, 3, 5, 8}) {
    std::vector<int32_t> all(static_cast<size_t>(replicas));
    std::iota(all.begin(), all.end(), 0);
    const ExpertTable table(replicas, {{all}});
    for (const int32_t stride : {1, 2, 3, 4, 7, 16, 64, 1000}) {
      std::vector<int> tokens(all.size(), 0);
      constexpr int kTokens = 2000;
      for (int32_t t = 0; t < kTokens; ++t) {
        const int32_t rank = chosen(table, 17 + t * stride, {0})[0];
        ASSERT_TRUE(rank >= 0 && rank < replicas);
        ++tokens[static_cast<size_t>(rank)];
      }
      const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
      EXPECT_LE(*most - *least, kTokens / replicas / 10) << replicas << " replicas, stride " << stride;
    }
  }
}

TEST(ExpertTable, ContractsAreChecked) {
  EXPECT_THROW(ExpertTable(2, {{{0}, {}}}), ContractError);
  EXPECT_THROW(ExpertTable(2, {{{0}, {2}}}), ContractError);
  EXPECT_THROW(ExpertTable(2, {{{0}, {-1}}}), ContractError);
  EXPECT_THROW(ExpertTable(2, {{{1, 0}}}), ContractError);
  EXPECT_THROW(ExpertTable(2, {{{1, 1}}}), ContractError);
  EXPECT_THROW(ExpertTable(2, {{{0}, {1}}, {{0}}}), ContractError);
}

}  // namespace
}  // namespace fathom::model
