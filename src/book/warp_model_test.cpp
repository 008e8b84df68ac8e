#include "book/warp_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace fathom::book {
namespace {

constexpr uint32_t kWholeWarp = ~uint32_t{0};

// Byte by byte, as the hardware's rules are told.
int sectors_by_bytes(const WarpAccess& access, uint32_t active) {
  std::set<int64_t> touched;
  for (int lane = 0; lane < 32; ++lane)
    for (int byte = 0; byte < access.element_bytes && (active >> lane & 1); ++byte)
      touched.insert(((access.base + int64_t{access.stride} * lane) * access.element_bytes + byte) / 32);
  return static_cast<int>(touched.size());
}

// The passes of each group: the most distinct words that one bank must deliver to it.
std::vector<int> passes_by_words(const WarpAccess& access, uint32_t active) {
  std::vector<int> passes;
  const int lanes = access.element_bytes == 16 ? 8 : access.element_bytes == 8 ? 16 : 32;
  for (int first = 0; first < 32; first += lanes) {
    std::map<int64_t, std::set<int64_t>> words_of_bank;
    for (int lane = first; lane < first + lanes; ++lane)
      for (int byte = 0; byte < access.element_bytes && (active >> lane & 1); ++byte) {
        int64_t at = (access.base + int64_t{access.stride} * lane) * access.element_bytes + byte;
        if (access.swizzle) {
          const int64_t unit = std::max(access.element_bytes, 4), columns = 128 / unit;
          const int64_t row = at / 128, column = at % 128 / unit;
          at = row * 128 + (column ^ (row % columns)) * unit + at % unit;
        }
        words_of_bank[at / 4 % 32].insert(at / 4);
      }
    size_t most = 0;
    for (const auto& [bank, words] : words_of_bank) most = std::max(most, words.size());
    passes.push_back(static_cast<int>(most));
  }
  return passes;
}

// The golden values of the book.
TEST(WarpModel, SectorsOfTheBook) {
  EXPECT_EQ(sectors({.base = 0, .stride = 1}, kWholeWarp), 4);
  EXPECT_EQ(sectors({.base = 1, .stride = 1}, kWholeWarp), 5);
  EXPECT_EQ(sectors({.base = 0, .stride = 2}, kWholeWarp), 8);
  EXPECT_EQ(sectors({.base = 0, .stride = 8}, kWholeWarp), 32);
}

TEST(WarpModel, DegreeOfAStrideIsItsCommonDivisorWithTheBanks) {
  for (int stride = 1; stride <= 200; ++stride)
    for (int bytes : {4, 8, 16}) {
      const WarpAccess access{.base = 3, .stride = stride, .element_bytes = bytes};
      EXPECT_EQ(conflict_degree(access, kWholeWarp), std::gcd(stride, 128 / bytes))
          << stride << " x " << bytes;
      EXPECT_EQ(bank_passes(access, kWholeWarp), bytes / 4 * std::gcd(stride, 128 / bytes))
          << stride << " x " << bytes;
    }
}

TEST(WarpModel, AgreesWithCountingBytesAndWords) {
  uint32_t random = 1;
  for (int bytes : {1, 2, 4, 8, 16})
    for (int stride : {-32, -7, -1, 0, 1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 97, 1024})
      for (int base : {0, 1, 7, 31, 40000})
        for (bool swizzle : {false, true})
          for (int trial = 0; trial < 4; ++trial) {
            const WarpAccess access{base, stride, bytes, swizzle};
            if (!possible(access)) continue;
            random                = random * 1664525 + 1013904223;
            const uint32_t active = trial == 0 ? kWholeWarp : trial == 1 ? 0 : random;
            EXPECT_EQ(sectors(access, active), sectors_by_bytes(access, active));
            const auto passes = passes_by_words(access, active);
            EXPECT_EQ(bank_passes(access, active), std::accumulate(passes.begin(), passes.end(), 0))
                << bytes << " bytes, stride " << stride << ", base " << base << (swizzle ? ", swizzled" : "");
            EXPECT_EQ(conflict_degree(access, active), *std::max_element(passes.begin(), passes.end()));
          }
}

// In a pass a bank gives one word, and every active lane has its pass.
TEST(WarpModel, PassesAreASchedule) {
  for (int bytes : {2, 4, 8, 16})
    for (int stride : {0, 1, 2, 3, 8, 32, 48}) {
      const WarpAccess access{.base = 5, .stride = stride, .element_bytes = bytes};
      const uint32_t active = 0xF7FF01FF;
      std::map<std::vector<int>, std::set<int>> words;  // of a group, a pass and a bank
      for (int lane = 0; lane < 32; ++lane) {
        const int pass = bank_pass(access, active, lane);
        EXPECT_EQ(pass >= 0, (active >> lane & 1) == 1);
        if (pass < 0) continue;
        EXPECT_LT(pass, conflict_degree(access, active));
        for (int byte = 0; byte < bytes; byte += 4) {
          const int word = (shared_address(access, lane) + byte) / 4;
          words[{lane / group_lanes(bytes), pass, word % 32}].insert(word);
        }
      }
      for (const auto& [where, all] : words)
        EXPECT_EQ(all.size(), 1u) << bytes << " bytes, stride " << stride;
    }
}

// A column of a tile with rows of 128 bytes, and a row of it, without conflict.
TEST(WarpModel, TheSwizzleServesRowsAndColumns) {
  for (int bytes : {4, 8, 16}) {
    const int row = 128 / bytes;
    for (int base : {0, 1, row - 1}) {
      EXPECT_EQ(conflict_degree({base, row, bytes, false}, kWholeWarp), row);
      EXPECT_EQ(conflict_degree({base, row, bytes, true}, kWholeWarp), 1);
    }
    EXPECT_EQ(conflict_degree({0, 1, bytes, true}, kWholeWarp), 1);
  }
  // Within its row, by whole units: row 17 has its first element of 8 bytes at column 1, and its eighteenth
  // of 2 bytes in word 8 xor 17.
  EXPECT_EQ(shared_address({0, 16, 8, true}, 17), 17 * 128 + 8);
  EXPECT_EQ(shared_address({17 * 64 + 17, 0, 2, true}, 0), 17 * 128 + (8 ^ 17) * 4 + 2);
  EXPECT_EQ(shared_address({9 * 8 + 1, 0, 16, true}, 0), 9 * 128 + 0);
  // It only moves: no two elements meet.
  std::set<int> places;
  for (int base = 0; base < 4096; base += 32)
    for (int lane = 0; lane < 32; ++lane) places.insert(shared_address({base, 1, 4, true}, lane));
  EXPECT_EQ(places.size(), 4096u);
}

TEST(WarpModel, OneWordForAllIsABroadcast) {
  EXPECT_EQ(conflict_degree({.stride = 0}, kWholeWarp), 1);
  EXPECT_EQ(sectors({.stride = 0}, kWholeWarp), 1);
  EXPECT_EQ(bytes_wanted({.stride = 0}, kWholeWarp), 4);
  EXPECT_EQ(bytes_wanted({.stride = 1, .element_bytes = 2}, kWholeWarp), 64);
  EXPECT_EQ(conflict_degree({.stride = 1, .element_bytes = 1}, kWholeWarp), 1);
}

TEST(WarpModel, NoLaneAndOneLane) {
  EXPECT_EQ(sectors({}, 0), 0);
  EXPECT_EQ(bytes_wanted({}, 0), 0);
  EXPECT_EQ(bank_passes({}, 0), 0);
  EXPECT_EQ(conflict_degree({}, 0), 0);
  EXPECT_EQ(sectors({.stride = 8}, 1u << 31), 1);
  EXPECT_EQ(bank_passes({.stride = 32, .element_bytes = 16}, 1u << 31), 1);
}

TEST(WarpModel, PathsOfBranches) {
  EXPECT_EQ(paths(Branch::none, 7), 1);
  EXPECT_EQ(paths(Branch::guard, 7), 1);
  EXPECT_EQ(lanes_of_path(Branch::guard, 7, 0), 0x7Fu);
  EXPECT_EQ(paths(Branch::if_else, 16), 2);
  EXPECT_EQ(paths(Branch::if_else, 32), 1);  // all lanes agree
  for (int k : {1, 2, 5, 8, 31, 32}) {
    EXPECT_EQ(paths(Branch::remainder, k), k);
    EXPECT_EQ(paths(Branch::quotient, k), (32 + k - 1) / k);
    for (Branch branch : {Branch::none, Branch::if_else, Branch::remainder, Branch::quotient}) {
      uint32_t all = 0;
      for (int path = 0; path < paths(branch, k); ++path) {
        EXPECT_EQ(all & lanes_of_path(branch, k, path), 0u);
        all |= lanes_of_path(branch, k, path);
      }
      EXPECT_EQ(all, kWholeWarp) << k;
    }
  }
}

TEST(WarpModel, RefusesImpossibleAccesses) {
  for (const WarpAccess& access :
       {WarpAccess{.element_bytes = 3}, WarpAccess{.element_bytes = 0}, WarpAccess{.element_bytes = 32},
        WarpAccess{.base = -1}, WarpAccess{.base = 30, .stride = -1}, WarpAccess{.stride = 1 << 30}})
    EXPECT_FALSE(possible(access));
  EXPECT_TRUE(possible({.base = 31, .stride = -1}));
}

}  // namespace
}  // namespace fathom::book
