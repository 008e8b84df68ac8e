#include "book/cache_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fathom::book {
namespace {

std::vector<uint32_t> trace_of(const LoopNest& nest) {
  std::vector<uint32_t> addresses(1 << 17);
  const int32_t count = make_trace(nest, addresses.data(), static_cast<int32_t>(addresses.size()));
  EXPECT_GE(count, 0);
  addresses.resize(static_cast<size_t>(std::max(count, 0)));
  return addresses;
}

int hits_of(const CacheShape& shape, const std::vector<uint32_t>& trace) {
  EXPECT_TRUE(Cache::possible(shape));
  static Cache cache;
  cache.reset(shape);
  int hits = 0;
  for (uint32_t address : trace) hits += cache.access(address).hit;
  return hits;
}

// A pseudo-random walk over few lines, so that every set sees hits, misses and evictions.
std::vector<uint32_t> walk(int count, uint32_t lines) {
  std::vector<uint32_t> trace;
  uint32_t state = 12345;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    trace.push_back((state >> 16) % lines * 64 + (state >> 8) % 64);
  }
  return trace;
}

// One set each, written as the policies are told: a queue for LRU and FIFO, a tree of intervals for PLRU.
struct PlainSet {
  size_t ways;
  Policy policy;
  std::deque<uint32_t> queue;                         // LRU and FIFO: the next to leave first
  std::vector<uint32_t> slot;                         // PLRU
  std::map<std::pair<int, int>, bool> right_is_next;  // of the interval [first, second)

  bool access(uint32_t line) {
    if (policy == Policy::plru) return access_plru(line);
    const auto at  = std::find(queue.begin(), queue.end(), line);
    const bool hit = at != queue.end();
    if (hit && policy == Policy::fifo) return true;
    if (hit) queue.erase(at);
    if (queue.size() == ways) queue.pop_front();
    queue.push_back(line);
    return hit;
  }

  bool access_plru(uint32_t line) {
    auto at        = std::find(slot.begin(), slot.end(), line);
    const bool hit = at != slot.end();
    if (!hit && slot.size() < ways) {
      at = slot.insert(slot.end(), line);
    } else if (!hit) {
      int low = 0, high = static_cast<int>(ways);
      while (high - low > 1) {
        const int middle                          = (low + high) / 2;
        (right_is_next[{low, high}] ? low : high) = middle;
      }
      at  = slot.begin() + low;
      *at = line;
    }
    const int where = static_cast<int>(at - slot.begin());
    for (int low = 0, high = static_cast<int>(ways); high - low > 1;) {
      const int middle              = (low + high) / 2;
      right_is_next[{low, high}]    = where < middle;
      (where < middle ? high : low) = middle;
    }
    return hit;
  }
};

int plain_hits(const CacheShape& shape, const std::vector<uint32_t>& trace) {
  std::vector<PlainSet> sets(static_cast<size_t>(shape.sets),
                             PlainSet{static_cast<size_t>(shape.ways), shape.policy, {}, {}, {}});
  int hits = 0;
  for (uint32_t address : trace) {
    const uint32_t line = address / static_cast<uint32_t>(shape.line_bytes);
    hits += sets[line % static_cast<uint32_t>(shape.sets)].access(line);
  }
  return hits;
}

// The golden values of the book: 8 sets of 2 ways, 256 reads of ints.
TEST(CacheModel, HitsOfStrides) {
  const std::map<int, int> golden = {{1, 240}, {2, 224}, {16, 0}, {17, 0}, {128, 0}};
  for (const auto& [stride, hits] : golden)
    EXPECT_EQ(hits_of({.sets = 8, .ways = 2}, trace_of({.n = 256, .stride = stride})), hits) << stride;
}

TEST(CacheModel, PoliciesDoWhatAPlainSimulationDoes) {
  const std::vector<std::vector<uint32_t>> traces = {
      walk(4000, 40), walk(4000, 300), trace_of({.n = 100, .stride = 24, .passes = 3}),
      trace_of({.pattern = Pattern::transpose, .n = 24, .stride = 32, .tile = 5}),
      trace_of({.pattern = Pattern::matmul_ikj, .n = 13, .stride = 16})};
  for (Policy policy : {Policy::lru, Policy::fifo, Policy::plru})
    for (int sets : {1, 2, 16})
      for (int ways : {1, 2, 4, 8, 16, 64})
        for (int line_bytes : {16, 64})
          for (const auto& trace : traces) {
            const CacheShape shape{sets, ways, line_bytes, policy};
            ASSERT_EQ(hits_of(shape, trace), plain_hits(shape, trace))
                << "policy " << static_cast<int>(policy) << ", " << sets << " x " << ways << ", line "
                << line_bytes;
          }
}

// A cyclic walk through one line too many is LRU's worst case, and FIFO's.
TEST(CacheModel, OneLineTooManyNeverHits) {
  const auto abcabc = trace_of({.n = 3, .stride = 16, .passes = 2});
  for (Policy policy : {Policy::lru, Policy::fifo}) {
    EXPECT_EQ(hits_of({1, 2, 64, policy}, abcabc), 0);
    EXPECT_EQ(hits_of({1, 4, 64, policy}, abcabc), 3);
  }
}

TEST(CacheModel, TellsWhatItEvicts) {
  static Cache cache;
  cache.reset({.sets = 2, .ways = 1});
  EXPECT_EQ(cache.access(0).evicted, -1);
  EXPECT_EQ(cache.line_at(0, 0), 0);
  const CacheAccess second = cache.access(128);  // line 2, of set 0 too
  EXPECT_FALSE(second.hit);
  EXPECT_EQ(second.set, 0);
  EXPECT_EQ(second.evicted, 0);
  EXPECT_EQ(cache.line_at(1, 0), -1);
}

TEST(CacheModel, RefusesImpossibleShapes) {
  for (const CacheShape& shape :
       {CacheShape{.sets = 0}, CacheShape{.sets = 3}, CacheShape{.ways = 128}, CacheShape{.line_bytes = 48},
        CacheShape{.sets = 8192}, CacheShape{.sets = -8}})
    EXPECT_FALSE(Cache::possible(shape));
}

// The inclusion property: one pass of the stack knows the hits of every capacity.
TEST(ReuseStack, KnowsTheHitsOfEveryCapacity) {
  for (const auto& trace :
       {walk(3000, 50), trace_of({.pattern = Pattern::matmul_ijk, .n = 12, .stride = 16})}) {
    static ReuseStack stack;
    stack.reset();
    std::vector<int32_t> distances;
    for (uint32_t address : trace) distances.push_back(stack.access(static_cast<int32_t>(address / 64)));
    for (int capacity : {1, 2, 4, 8, 16, 32, 64}) {
      const auto below = std::count_if(distances.begin(), distances.end(),
                                       [&](int32_t d) { return d != ReuseStack::kFirst && d < capacity; });
      EXPECT_EQ(below, plain_hits({.sets = 1, .ways = capacity}, trace)) << capacity;
    }
  }
}

TEST(LoopNest, TilingOnlyReorders) {
  for (Pattern pattern : {Pattern::transpose, Pattern::matmul_ijk, Pattern::matmul_ikj}) {
    const auto plain = trace_of({.pattern = pattern, .n = 11, .stride = 13});
    for (int tile : {1, 4, 10, 11, 12}) {
      auto tiled = trace_of({.pattern = pattern, .n = 11, .stride = 13, .tile = tile});
      EXPECT_EQ(std::multiset<uint32_t>(tiled.begin(), tiled.end()),
                std::multiset<uint32_t>(plain.begin(), plain.end()));
      EXPECT_EQ(tiled == plain, tile == 1 || tile >= 11) << tile;
    }
  }
}

TEST(LoopNest, ColumnsAreRowsTransposed) {
  EXPECT_EQ(trace_of({.pattern = Pattern::rows, .n = 2, .stride = 8}), (std::vector<uint32_t>{0, 4, 32, 36}));
  EXPECT_EQ(trace_of({.pattern = Pattern::columns, .n = 2, .stride = 8}),
            (std::vector<uint32_t>{0, 32, 4, 36}));
  EXPECT_EQ(trace_of({.pattern = Pattern::transpose, .n = 2, .stride = 2}),
            (std::vector<uint32_t>{0, 16, 4, 24, 8, 20, 12, 28}));
  EXPECT_TRUE(trace_of({.n = 0}).empty());
}

TEST(LoopNest, RefusesWhatDoesNotFit) {
  uint32_t few[8];
  EXPECT_EQ(make_trace({.n = 9}, few, 8), -1);
  EXPECT_EQ(make_trace({.pattern = Pattern::transpose, .n = 3, .stride = 3}, few, 8), -1);
  EXPECT_EQ(make_trace({.pattern = Pattern::rows, .n = 2, .stride = 1}, few, 8), -1);
  EXPECT_EQ(make_trace({.n = -1}, few, 8), -1);
  EXPECT_EQ(make_trace({.n = 8}, few, 8), 8);
}

}  // namespace
}  // namespace fathom::book
