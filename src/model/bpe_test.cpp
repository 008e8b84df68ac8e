#include "model/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "core/expect.h"

namespace fathom::model {
namespace {

// The reference, in O(n^2).
std::vector<TokenId> reference(const MergeTable& merges, std::vector<TokenId> ids) {
  for (;;) {
    const Merge* best = nullptr;
    size_t at         = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const Merge* merge = merges.find(ids[i], ids[i + 1]);
          merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at   = i;
      }
    if (!best) return ids;
    ids[at] = best->merged;
    ids.erase(ids.begin() + static_cast<int64_t>(at) + 1);
  }
}

TEST(BytePairs, MergesLowestRankFirstThenLeftmost) {
  MergeTable merges;  // 0 1 -> 10, 1 2 -> 11 (earlier), 0 0 -> 12
  merges.insert(0, 1, {.rank = 1, .merged = 10});
  merges.insert(1, 2, {.rank = 0, .merged = 11});
  merges.insert(0, 0, {.rank = 2, .merged = 12});
  const auto merged = [&](std::vector<TokenId> piece) {
    std::vector<TokenId> out = {99};  // merge() appends
    BpeMerger(merges).merge(piece, out);
    return out;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(merged({}), (Ids{99}));
  EXPECT_EQ(merged({0}), (Ids{99, 0}));
  EXPECT_EQ(merged({0, 1}), (Ids{99, 10}));
  EXPECT_EQ(merged({0, 1, 2}), (Ids{99, 0, 11}));
  EXPECT_EQ(merged({0, 0, 0}), (Ids{99, 12, 0}));
  EXPECT_EQ(merged({2, 1, 0}), (Ids{99, 2, 1, 0}));
}

// Ids that differ in high bits, in low bits and by their order, while the table grows.
TEST(MergeTable, HoldsWhatAMapHolds) {
  std::mt19937_64 generator(3);
  MergeTable table;
  EXPECT_EQ(table.find(0, 0), nullptr);
  std::map<std::pair<TokenId, TokenId>, TokenId> map;
  const auto id = [&] {
    const auto any = static_cast<TokenId>(generator() & 0x7fffffff);
    return generator() % 2 ? any % 40 : generator() % 2 ? any & ~0xffffff : any;
  };
  for (TokenId merged = 0; merged < 3000; ++merged) {
    if (merged == 500) table.reserve(1000);
    const TokenId left = id(), right = id();
    table.insert(left, right, {.rank = 1, .merged = merged});
    map[{left, right}] = merged;
    ASSERT_EQ(table.size(), map.size());
    const TokenId a = id(), b = id();
    ASSERT_EQ(table.find(a, b) != nullptr, map.contains({a, b}));
  }
  for (const auto& [pair, merged] : map) {
    ASSERT_NE(table.find(pair.first, pair.second), nullptr);
    EXPECT_EQ(table.find(pair.first, pair.second)->merged, merged);
  }
  EXPECT_THROW(table.insert(-1, 0, {}), ContractError);
}

// Few tokens and many merges of merges, so that most pairs vanish before they are popped. Catches stale
// pairs.
TEST(BytePairs, AgreesWithTheReference) {
  std::mt19937_64 generator(1);
  for (int trial = 0; trial < 300; ++trial) {
    MergeTable merges;
    const int tokens = 2 + static_cast<int>(generator() % 3), rules = static_cast<int>(generator() % 12);
    for (int rank = 0; rank < rules; ++rank)
      merges.insert(static_cast<TokenId>(generator() % (tokens + rank)),
                    static_cast<TokenId>(generator() % (tokens + rank)),
                    {.rank = rank, .merged = tokens + rank});
    BpeMerger merger(merges);
    for (const size_t size : {0, 1, 2, 3, 7, 31, 97}) {
      std::vector<TokenId> piece(size), out;
      for (TokenId& id : piece) id = static_cast<TokenId>(generator() % tokens);
      merger.merge(piece, out);
      ASSERT_EQ(out, reference(merges, piece)) << "trial " << trial << " size " << size;
    }
  }
}

// A megabyte of one letter, with merges that double: the input on which a scan per merge takes hours.
TEST(BytePairs, StepsAreLinearInThePiece) {
  MergeTable merges;
  for (TokenId id = 0; id < 12; ++id) merges.insert(id, id, {.rank = id, .merged = id + 1});
  BpeMerger merger(merges);
  constexpr int64_t kBytes = 1'000'003;
  std::vector<TokenId> out;
  merger.merge(std::vector<TokenId>(kBytes, 0), out);
  EXPECT_LE(merger.steps(), 3 * kBytes);
  int64_t covered = 0;
  for (const TokenId id : out) covered += int64_t{1} << id;
  EXPECT_EQ(covered, kBytes);
  EXPECT_LE(out.size(), kBytes / 4096 + 12u);
}

}  // namespace
}  // namespace fathom::model
