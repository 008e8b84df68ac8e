#include "compile/memory.h"

#include <gtest/gtest.h>

#include <random>

namespace fathom::compile {
namespace {

void expect_disjoint(const std::vector<Lifetime>& lifetimes, const Slab& slab) {
  for (size_t a = 0; a < lifetimes.size(); ++a) {
    EXPECT_EQ(slab.offsets[a] % 64, 0);
    EXPECT_LE(slab.offsets[a] + lifetimes[a].bytes, slab.bytes);
    for (size_t b = 0; b < a; ++b) {
      if (lifetimes[a].last < lifetimes[b].first || lifetimes[b].last < lifetimes[a].first) continue;
      EXPECT_TRUE(slab.offsets[a] + lifetimes[a].bytes <= slab.offsets[b] ||
                  slab.offsets[b] + lifetimes[b].bytes <= slab.offsets[a])
          << "tensors " << b << " and " << a << " share bytes while both live";
    }
  }
  EXPECT_GE(slab.bytes, live_bytes(lifetimes));
}

TEST(Memory, NothingAndOne) {
  EXPECT_EQ(plan_slab({}).bytes, 0);
  EXPECT_EQ(plan_slab({{0, 0, 1}}).bytes, 0);
  EXPECT_EQ(plan_slab({{1, 0, 1}}).bytes, 64);
}

TEST(Memory, AChainTakesTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 7; ++i) chain.push_back({1000, i, i + 1});
  const Slab slab = plan_slab(chain);
  expect_disjoint(chain, slab);
  EXPECT_EQ(slab.bytes, 2 * 1024);
  EXPECT_EQ(live_bytes(chain), 2 * 1024);
}

TEST(Memory, RandomLifetimesNeverShareBytes) {
  std::mt19937_64 random(1);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> lifetimes(static_cast<size_t>(pick(40)));
    for (Lifetime& lifetime : lifetimes) {
      lifetime      = {pick(5000), pick(20), 0};
      lifetime.last = lifetime.first + pick(8);
    }
    expect_disjoint(lifetimes, plan_slab(lifetimes));
  }
}

}  // namespace
}  // namespace fathom::compile
