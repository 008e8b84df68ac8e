#include "experiments/ch13_training/caching_allocator/size_class_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "core/expect.h"
#include "core/splitmix64.h"
#include "experiments/ch13_training/caching_allocator/serving_trace.h"

namespace fathom::lab::caching_allocator {
namespace {

// Addresses without memory, never the same twice.
struct FakeSource {
  int64_t capacity = INT64_MAX, used = 0;
  uintptr_t next = 0x10000;
  int asked = 0, released = 0;
  std::map<void*, int64_t> live;

  BlockSource source() {
    return {.allocate = [this](int64_t bytes) -> void* {
              ++asked;
              if (bytes > capacity - used) return nullptr;
              void* memory = reinterpret_cast<void*>(next);
              next += static_cast<uintptr_t>(bytes) + 4096;
              used += bytes;
              live[memory] = bytes;
              return memory;
            },
            .release =
                [this](void* memory) {
                  ASSERT_EQ(live.count(memory), 1u) << "released twice, or not from here";
                  ++released;
                  used -= live[memory];
                  live.erase(memory);
                },
            .available = [this] { return capacity - used; }};
  }
};

TEST(SizeClassCache, ClassesAreFourAPowerOfTwo) {
  EXPECT_EQ(SizeClassCache::size_class(1), 512);
  EXPECT_EQ(SizeClassCache::size_class(512), 512);
  EXPECT_EQ(SizeClassCache::size_class(513), 1024);
  EXPECT_EQ(SizeClassCache::size_class(2047), 2048);
  EXPECT_EQ(SizeClassCache::size_class(2048), 2048);
  EXPECT_EQ(SizeClassCache::size_class(2049), 2560);
  EXPECT_EQ(SizeClassCache::size_class(4097), 5120);
  EXPECT_EQ(SizeClassCache::size_class((1 << 20) + 1), 5 << 18);
  EXPECT_EQ(SizeClassCache::size_class((7 << 18) + 1), 1 << 21);
  std::set<int64_t> between;
  for (int64_t bytes = (1 << 16) + 1; bytes <= 1 << 17; ++bytes)
    between.insert(SizeClassCache::size_class(bytes));
  EXPECT_EQ(between.size(), 4u);
}

TEST(SizeClassCache, AClassIsLargeEnoughAlignedAndNotWasteful) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const int64_t bytes = 1 + static_cast<int64_t>(splitmix64(i) >> (24 + i % 39));
    const int64_t size  = SizeClassCache::size_class(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % SizeClassCache::kAlignment, 0);
    ASSERT_EQ(SizeClassCache::size_class(size), size) << "a class is its own";
    ASSERT_TRUE(bytes <= 2048 || 5 * (size - bytes) <= size) << bytes;
  }
}

TEST(SizeClassCache, RefusesSizesThatAreNone) {
  EXPECT_THROW(SizeClassCache::size_class(0), ContractError);
  EXPECT_THROW(SizeClassCache::size_class(-1), ContractError);
  EXPECT_THROW(SizeClassCache::size_class(INT64_MAX), ContractError);
  FakeSource fake;
  SizeClassCache cache(fake.source());
  EXPECT_THROW(cache.allocate(-1), ContractError);
  EXPECT_EQ(fake.asked, 0);
}

TEST(SizeClassCache, ZeroBytesAreNoMemory) {
  FakeSource fake;
  SizeClassCache cache(fake.source());
  EXPECT_EQ(cache.allocate(0), nullptr);
  cache.free(nullptr);
  EXPECT_EQ(fake.asked, 0);
  EXPECT_EQ(cache.reserved(), 0);
}

TEST(SizeClassCache, ServesTheNextRequestOfTheClassFromTheFreedBlock) {
  FakeSource fake;
  SizeClassCache cache(fake.source());
  void* first = cache.allocate(5000);
  cache.free(first);
  EXPECT_EQ(cache.in_use(), 0);
  EXPECT_EQ(cache.reserved(), 5120);
  EXPECT_EQ(cache.allocate(4097), first) << "the same class";
  EXPECT_NE(cache.allocate(4097), first) << "it is in use";
  EXPECT_NE(cache.allocate(4096), first) << "another class";
  EXPECT_EQ(fake.asked, 3);
}

TEST(SizeClassCache, FreeingTwiceOrForeignMemoryIsAnError) {
  FakeSource fake;
  SizeClassCache cache(fake.source());
  void* block = cache.allocate(100);
  EXPECT_THROW(cache.free(reinterpret_cast<void*>(0x500)), ContractError);
  EXPECT_THROW(cache.free(static_cast<char*>(block) + 256), ContractError) << "inside a block";
  cache.free(block);
  EXPECT_THROW(cache.free(block), ContractError);
  EXPECT_EQ(cache.in_use(), 0) << "a refused free changes nothing";
  EXPECT_EQ(cache.allocate(100), block);
  EXPECT_NE(cache.allocate(100), block) << "the refused free has not put it into the list again";
}

TEST(SizeClassCache, GivesCachedBlocksBackBeforeItFails) {
  FakeSource fake{.capacity = 1 << 20};
  SizeClassCache cache(fake.source());
  void* large = cache.allocate(1 << 19);
  void* kept  = cache.allocate(1 << 18);
  cache.free(large);
  EXPECT_NE(cache.allocate(5 << 17), nullptr) << "room only once the cached block is given back";
  EXPECT_EQ(fake.released, 1);
  EXPECT_EQ(cache.reserved(), (5 << 17) + (1 << 18));
  EXPECT_THROW(cache.free(large), ContractError) << "it is no block any more";
  cache.free(kept);
}

TEST(SizeClassCache, ExhaustionSaysHowMuchWasWantedAndIsRecoverable) {
  FakeSource fake{.capacity = int64_t{4} << 30};
  SizeClassCache cache(fake.source());
  void* half = cache.allocate(int64_t{2} << 30);
  try {
    cache.allocate(int64_t{3} << 30);
    FAIL() << "there is no room for it";
  } catch (const NotEnoughMemory& e) {
    EXPECT_STREQ(e.what(), "3.0 GiB wanted, 2.0 GiB available");
  }
  EXPECT_EQ(cache.in_use(), int64_t{2} << 30);
  EXPECT_NE(cache.allocate(int64_t{2} << 30), nullptr);
  cache.free(half);
}

TEST(SizeClassCache, ReleasesEveryBlockAtItsEnd) {
  FakeSource fake;
  {
    SizeClassCache cache(fake.source());
    cache.free(cache.allocate(100));
    cache.allocate(1 << 20);
  }
  EXPECT_EQ(fake.released, 2);
  EXPECT_TRUE(fake.live.empty());
}

TEST(SizeClassCache, RefusesASourceThatDoesNotAlign) {
  SizeClassCache cache({.allocate  = [](int64_t) { return reinterpret_cast<void*>(0x1010); },
                        .release   = [](void*) {},
                        .available = [] { return int64_t{0}; }});
  EXPECT_THROW(cache.allocate(1), ContractError);
}

// After some steps a trace that repeats asks the source for nothing, and blocks in use never overlap.
TEST(SizeClassCache, ReplaysServingStepsWithoutNewBlocks) {
  const Trace trace = moe_serving_trace(8);
  FakeSource fake;
  SizeClassCache cache(fake.source());
  std::vector<void*> where(trace.bytes.size());
  int asked_before = 0;
  for (int round = 0; round < 2; ++round) {
    asked_before = fake.asked;
    std::map<void*, int64_t> used;
    for (const auto& [allocation, frees] : trace.events) {
      void*& memory = where[static_cast<size_t>(allocation)];
      if (frees) {
        used.erase(memory);
        cache.free(memory);
      } else {
        const int64_t bytes = trace.bytes[static_cast<size_t>(allocation)];
        memory              = cache.allocate(bytes);
        ASSERT_GE(fake.live.at(memory), bytes);
        ASSERT_TRUE(used.emplace(memory, bytes).second) << "in use twice";
      }
    }
    EXPECT_EQ(cache.in_use(), 0);
  }
  EXPECT_EQ(fake.asked, asked_before);
  EXPECT_GE(cache.reserved(), trace.peak_bytes);
}

}  // namespace
}  // namespace fathom::lab::caching_allocator
