#include "book/kv_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace fathom::book {
namespace {

std::unique_ptr<KvAllocator> started(const KvOptions& options, const std::vector<KvRequest>& requests) {
  auto allocator = std::make_unique<KvAllocator>();
  allocator->reset(options, requests.data(), static_cast<int>(requests.size()));
  return allocator;
}

KvCounts after_first_step(const KvOptions& options, const std::vector<KvRequest>& requests) {
  const auto allocator = started(options, requests);
  allocator->step();
  return allocator->counts();
}

// The golden values of the book: 3 requests of 40 tokens, 32 of them shared.
TEST(KvModel, SharedBlocksOfTheBook) {
  const std::vector<KvRequest> three(3, {.prompt = 40});
  const KvCounts shared = after_first_step({.sharing = Sharing::in_use}, three);
  EXPECT_EQ(shared.in_use, 5);
  EXPECT_EQ(shared.unshared, 9);
  EXPECT_EQ(shared.found, 64);
  EXPECT_EQ(shared.filled, 32 + 3 * 8);
  EXPECT_EQ(after_first_step({.sharing = Sharing::none}, three).in_use, 9);
}

// Chapter 18: 100 tokens waste 95.1 % of a slot of 2048, and 10.7 % of blocks of 16.
TEST(KvModel, WasteOfTheBook) {
  const auto waste = [](const KvOptions& options) {
    const KvCounts counts = after_first_step(options, {{.prompt = 100}});
    return 1 - static_cast<double>(counts.filled) / (counts.in_use * options.block_size);
  };
  EXPECT_NEAR(waste({.placement = Placement::contiguous, .blocks = 128, .reserve = 2048}), 0.951, 5e-4);
  EXPECT_NEAR(waste({.blocks = 128}), 0.107, 5e-4);
}

TEST(KvModel, OneTokenOfAPromptIsLeftToCompute) {
  const KvCounts counts = after_first_step({}, {{.prompt = 32}, {.prompt = 32}});
  EXPECT_EQ(counts.in_use, 3);  // the second block is computed again, for its last token
  EXPECT_EQ(counts.found, 16);
}

TEST(KvModel, NothingAndOneToken) {
  EXPECT_FALSE(started({}, {})->step());
  const auto one = started({.blocks = 1, .block_size = 1}, {{.prompt = 1}});
  EXPECT_TRUE(one->step());
  EXPECT_EQ(one->counts().in_use, 1);
  EXPECT_FALSE(one->step());
  EXPECT_EQ(one->state(0), RequestState::finished);
  EXPECT_EQ(one->counts().in_use, 0);
  EXPECT_EQ(one->counts().cached, 1);
}

TEST(KvModel, ReleasedPrefixesAreFoundUntilEvicted) {
  const std::vector<KvRequest> apart = {{.prompt = 40, .arrival = 0}, {.prompt = 40, .arrival = 5}};
  for (const auto& [sharing, found] :
       std::map<Sharing, int>{{Sharing::none, 0}, {Sharing::in_use, 0}, {Sharing::until_evicted, 32}}) {
    const auto allocator = started({.sharing = sharing}, apart);
    while (allocator->step()) {
    }
    EXPECT_EQ(allocator->counts().found, found);
    EXPECT_EQ(allocator->counts().evicted, 0);
  }
  // A stranger in between, whose prompt is shorter than the prefix, needs all three blocks: its own and two
  // others.
  const auto allocator = started({.blocks = 3}, {{40, 0, 0}, {15, 33, 2}, {40, 0, 60}});
  while (allocator->step()) {
  }
  EXPECT_EQ(allocator->counts().found, 0);
  EXPECT_GE(allocator->counts().evicted, 2);
}

// A prefix is evicted from its end, so that its beginning can still be found.
TEST(KvModel, EvictionTakesTheEndOfAPrefixFirst) {
  const auto allocator = started({.blocks = 4, .shared = 64}, {{64, 0, 0}, {1, 0, 2}, {64, 0, 4}});
  while (allocator->step()) {
  }
  EXPECT_EQ(allocator->found(2), 48);
}

TEST(KvModel, ContiguousRangesLeaveGapsThatNobodyCanUse) {
  const KvOptions options{.placement = Placement::contiguous, .blocks = 6, .reserve = 32};
  const auto allocator = started(options, {{16, 0, 0}, {16, 9, 0}, {16, 0, 0}, {16, 0, 2}});
  allocator->step();
  EXPECT_EQ(allocator->counts().in_use, 6);
  allocator->step();  // the first and the third leave
  EXPECT_EQ(allocator->counts().in_use, 2);
  EXPECT_EQ(allocator->counts().longest_gap, 2);
  const auto wide =
      started({.placement = Placement::contiguous, .blocks = 6, .reserve = 48}, {{16, 5, 0}, {49, 0, 0}});
  EXPECT_EQ(wide->state(1), RequestState::too_long);
}

TEST(KvModel, ARequestThatNeverFitsIsRefused) {
  const auto allocator = started({.blocks = 2}, {{.prompt = 32, .output = 1}, {.prompt = 32}});
  EXPECT_EQ(allocator->state(0), RequestState::too_long);
  EXPECT_EQ(allocator->state(1), RequestState::expected);
  while (allocator->step()) {
  }
  EXPECT_EQ(allocator->state(1), RequestState::finished);
}

TEST(KvModel, TheLastAdmittedGivesWayAndComputesAgain) {
  const auto allocator =
      started({.sharing = Sharing::none, .blocks = 4, .shared = 0}, {{16, 32, 0}, {16, 32, 0}});
  int steps = 0;
  while (allocator->step()) ASSERT_LT(++steps, 200);
  EXPECT_EQ(allocator->counts().preempted, 1);
  EXPECT_EQ(allocator->state(0), RequestState::finished);
  EXPECT_EQ(allocator->state(1), RequestState::finished);
}

// Tokens are written into memory where the tables say. Every request must read back its own, whatever was
// shared, evicted and preempted in between; and a block that two requests hold holds the same for both.
void expect_tokens_in_place(const KvOptions& options, const std::vector<KvRequest>& requests) {
  const auto allocator = started(options, requests);
  const int count      = static_cast<int>(requests.size());
  const auto token     = [&](int r, int position) {
    return position < std::min(options.shared, requests[r].prompt) ? position : 100000 * (r + 1) + position;
  };
  std::map<std::pair<int, int>, int> memory;  // block and slot
  std::vector<int> stored(requests.size(), 0);
  bool more = true;
  for (int steps = 0; more; ++steps) {
    ASSERT_LT(steps, 5000);
    more = allocator->step();
    for (int r = 0; r < count; ++r) {
      if (allocator->state(r) != RequestState::running) {
        stored[r] = 0;
        continue;
      }
      // Preempted and admitted in the same step: it is stored anew, like one that has just come.
      const bool anew = stored[r] == 0 || allocator->tokens(r) != stored[r] + 1;
      for (int p = anew ? allocator->found(r) : stored[r]; p < allocator->tokens(r); ++p)
        memory[{allocator->block(r, p / options.block_size), p % options.block_size}] = token(r, p);
      stored[r] = allocator->tokens(r);
    }
    std::map<int, int> holders;
    std::set<std::pair<int, int>> slots;
    int unshared = 0;
    for (int r = 0; r < count; ++r) {
      for (int i = 0; i < allocator->table_size(r); ++i) ++holders[allocator->block(r, i)];
      if (allocator->state(r) != RequestState::running) continue;
      for (int p = 0; p < allocator->tokens(r); ++p) {
        const std::pair<int, int> slot{allocator->block(r, p / options.block_size), p % options.block_size};
        ASSERT_EQ(memory[slot], token(r, p)) << "request " << r << ", position " << p << ", step " << steps;
        slots.insert(slot);
      }
      unshared += options.placement == Placement::paged
                      ? (allocator->tokens(r) + options.block_size - 1) / options.block_size
                      : allocator->table_size(r);
    }
    for (int b = 0; b < options.blocks; ++b) ASSERT_EQ(allocator->references(b), holders[b]);
    const KvCounts counts = allocator->counts();
    ASSERT_EQ(counts.in_use, std::count_if(holders.begin(), holders.end(),
                                           [](const auto& held) { return held.second > 0; }));
    ASSERT_EQ(counts.filled, static_cast<int>(slots.size()));
    ASSERT_EQ(counts.unshared, unshared);
    ASSERT_LE(counts.in_use + counts.cached, options.blocks);
  }
  for (int r = 0; r < count; ++r) EXPECT_NE(allocator->state(r), RequestState::waiting);
}

TEST(KvModel, EveryRequestReadsBackItsTokens) {
  uint32_t random  = 7;
  const auto below = [&](uint32_t n) {
    random = random * 1664525 + 1013904223;
    return static_cast<int>((random >> 8) % n);
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<KvRequest> requests;
    for (int r = below(kMostRequests + 1); r > 0; --r)
      requests.push_back({1 + below(60), below(50), below(40)});
    const KvOptions options{.placement  = trial % 5 == 0 ? Placement::contiguous : Placement::paged,
                            .sharing    = static_cast<Sharing>(trial % 3),
                            .blocks     = 4 + below(40),
                            .block_size = std::vector<int>{1, 4, 7, 16}[below(4)],
                            .shared     = below(50),
                            .reserve    = 60 + below(60)};
    expect_tokens_in_place(options, requests);
    if (HasFatalFailure()) FAIL() << "trial " << trial;
  }
}

}  // namespace
}  // namespace fathom::book
