#include "experiments/ch13_training/caching_allocator/growing_arena.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <vector>

#include "core/expect.h"
#include "core/splitmix64.h"
#include "experiments/ch13_training/caching_allocator/serving_trace.h"

namespace fathom::lab::caching_allocator {
namespace {

constexpr int64_t kGranularity = 4096;

// Addresses without memory, `available` bytes of which can get some.
struct FakeRange {
  int64_t available = INT64_MAX, mapped = 0;
  int maps = 0;

  AddressRange range(int64_t capacity = int64_t{1} << 40) {
    return {.base        = reinterpret_cast<void*>(0x100000),
            .capacity    = capacity,
            .granularity = kGranularity,
            .map         = [this](int64_t offset, int64_t bytes) {
              EXPECT_EQ(offset, mapped) << "memory is added at the end";
              EXPECT_EQ(bytes % kGranularity, 0);
              EXPECT_GT(bytes, 0);
              if (bytes > available - mapped) return false;
              mapped += bytes;
              ++maps;
              return true;
            }};
  }
};

char* at(int64_t offset) { return reinterpret_cast<char*>(0x100000 + offset); }

TEST(GrowingArena, SplitsTheFirstGapAndAlignsPieces) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  EXPECT_EQ(arena.allocate(1), at(0));
  EXPECT_EQ(arena.allocate(513), at(512));
  EXPECT_EQ(arena.allocate(512), at(1536));
  EXPECT_EQ(arena.in_use(), 2048);
  EXPECT_EQ(arena.reserved(), kGranularity);
  EXPECT_EQ(fake.maps, 1);
  EXPECT_EQ(arena.gaps(), 1);
}

TEST(GrowingArena, ZeroBytesAreNoMemory) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  EXPECT_EQ(arena.allocate(0), nullptr);
  arena.free(nullptr);
  EXPECT_EQ(fake.maps, 0);
  EXPECT_THROW(arena.allocate(-1), ContractError);
}

TEST(GrowingArena, MergesWithTheGapBeforeTheGapAfterAndBoth) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  std::vector<void*> p;
  for (int i = 0; i < 8; ++i) p.push_back(arena.allocate(512));  // all of the first 4096
  EXPECT_EQ(arena.gaps(), 0);
  arena.free(p[1]);
  arena.free(p[3]);
  EXPECT_EQ(arena.gaps(), 2);
  arena.free(p[4]);  // after a gap
  EXPECT_EQ(arena.gaps(), 2);
  arena.free(p[0]);  // before a gap
  EXPECT_EQ(arena.gaps(), 2);
  arena.free(p[2]);  // between two
  EXPECT_EQ(arena.gaps(), 1);
  EXPECT_EQ(arena.allocate(5 * 512), at(0)) << "five pieces are one gap";
  arena.free(p[7]);
  arena.free(p[5]);
  arena.free(p[6]);
  EXPECT_EQ(arena.gaps(), 1);
  EXPECT_EQ(arena.reserved(), kGranularity) << "it never had to grow";
}

TEST(GrowingArena, TakesTheBestFit) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  void* wide   = arena.allocate(2048);
  void* wall   = arena.allocate(512);
  void* narrow = arena.allocate(1024);
  arena.allocate(512);
  arena.free(wide);
  arena.free(narrow);
  EXPECT_EQ(arena.allocate(1000), narrow);
  EXPECT_EQ(arena.allocate(1000), wide) << "split: the smaller gap is gone";
  EXPECT_EQ(arena.allocate(1000), static_cast<char*>(wide) + 1024);
  arena.free(wall);
}

// A request lies across the seam between old and new memory, and only what lacks is added.
TEST(GrowingArena, GrowsInPlaceByWhatTheLastGapLacks) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  void* first = arena.allocate(1024);
  EXPECT_EQ(arena.allocate(kGranularity + 512), at(1024));
  EXPECT_EQ(arena.reserved(), 2 * kGranularity) << "1536 more bytes, in a whole unit";
  EXPECT_EQ(first, at(0)) << "nothing has moved";
  EXPECT_EQ(arena.gaps(), 1);
  arena.free(first);
  EXPECT_EQ(arena.allocate(2 * kGranularity), at(1024 + kGranularity + 512))
      << "the gap at the begin is too small";
}

TEST(GrowingArena, FreeingTwiceOrForeignMemoryIsAnError) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  void* piece = arena.allocate(1024);
  void* other = arena.allocate(512);
  EXPECT_THROW(arena.free(at(-512)), ContractError) << "before the arena";
  EXPECT_THROW(arena.free(at(kGranularity)), ContractError) << "an address without memory";
  EXPECT_THROW(arena.free(at(512)), ContractError) << "inside a piece";
  EXPECT_THROW(arena.free(at(1)), ContractError);
  EXPECT_THROW(arena.free(at(2048)), ContractError) << "a gap";
  arena.free(piece);
  EXPECT_THROW(arena.free(piece), ContractError);
  EXPECT_EQ(arena.in_use(), 512) << "a refused free changes nothing";
  arena.free(other);
  EXPECT_THROW(arena.free(other), ContractError) << "merged into a larger gap";
  EXPECT_EQ(arena.gaps(), 1);
}

TEST(GrowingArena, ExhaustionIsAnErrorAndChangesNothing) {
  FakeRange fake{.available = 4 * kGranularity};
  GrowingArena arena(fake.range());
  void* piece = arena.allocate(3 * kGranularity);
  EXPECT_THROW(arena.allocate(2 * kGranularity), NotEnoughMemory) << "no memory left";
  EXPECT_EQ(arena.reserved(), 3 * kGranularity);
  EXPECT_EQ(arena.in_use(), 3 * kGranularity);
  EXPECT_EQ(arena.allocate(kGranularity), at(3 * kGranularity)) << "what is left still serves";
  arena.free(piece);
  EXPECT_EQ(arena.allocate(2 * kGranularity), piece);
}

TEST(GrowingArena, AddressesRunOutToo) {
  FakeRange fake;
  GrowingArena arena(fake.range(2 * kGranularity));
  EXPECT_THROW(arena.allocate(2 * kGranularity + 1), NotEnoughMemory);
  EXPECT_THROW(arena.allocate(INT64_MAX), NotEnoughMemory) << "rounding must not overflow";
  EXPECT_EQ(fake.maps, 0);
  EXPECT_EQ(arena.allocate(2 * kGranularity), at(0));
  EXPECT_THROW(arena.allocate(1), NotEnoughMemory);
  GrowingArena none(fake.range(0));
  EXPECT_THROW(none.allocate(1), NotEnoughMemory);
}

TEST(GrowingArena, RefusesRangesThatAreNotAligned) {
  FakeRange fake;
  AddressRange crooked = fake.range();
  crooked.base         = at(8);
  EXPECT_THROW(GrowingArena{crooked}, ContractError);
  AddressRange odd = fake.range();
  odd.granularity  = 1000;
  EXPECT_THROW(GrowingArena{odd}, ContractError);
}

// Pieces in use never overlap and lie within the memory, whatever is asked; in the end one gap is left.
TEST(GrowingArena, RandomRequestsNeverOverlap) {
  FakeRange fake;
  GrowingArena arena(fake.range());
  std::map<int64_t, int64_t> used;  // offset, bytes asked for
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t random = splitmix64(i + 1);
    if (used.empty() || (random % 100 < 52 && used.size() < 400)) {
      const int64_t bytes = 1 + static_cast<int64_t>((random >> 8) % (random & 128 ? 300 : 30000));
      const auto offset   = static_cast<char*>(arena.allocate(bytes)) - at(0);
      ASSERT_EQ(offset % GrowingArena::kAlignment, 0);
      ASSERT_LE(offset + bytes, arena.reserved());
      const auto [mine, is_new] = used.emplace(offset, bytes);
      ASSERT_TRUE(is_new);
      const bool first = mine == used.begin(), last = std::next(mine) == used.end();
      ASSERT_TRUE(first || std::prev(mine)->first + std::prev(mine)->second <= offset);
      ASSERT_TRUE(last || offset + bytes <= std::next(mine)->first);
    } else {
      const auto victim = std::next(used.begin(), static_cast<int64_t>((random >> 8) % used.size()));
      arena.free(at(victim->first));
      used.erase(victim);
    }
  }
  while (!used.empty()) {
    arena.free(at(used.begin()->first));
    used.erase(used.begin());
  }
  EXPECT_EQ(arena.in_use(), 0);
  EXPECT_EQ(arena.gaps(), 1);
  EXPECT_EQ(arena.allocate(arena.reserved()), at(0)) << "all of it is one piece again";
}

TEST(GrowingArena, ReplaysServingStepsInLittleMoreThanTheirPeak) {
  const Trace trace = moe_serving_trace(16);
  FakeRange fake;
  GrowingArena arena(fake.range());
  std::vector<void*> where(trace.bytes.size());
  int64_t reserved_before = 0;
  for (int round = 0; round < 3; ++round) {
    reserved_before = arena.reserved();
    for (const auto& [allocation, frees] : trace.events) {
      void*& memory = where[static_cast<size_t>(allocation)];
      if (frees)
        arena.free(memory);
      else
        memory = arena.allocate(trace.bytes[static_cast<size_t>(allocation)]);
    }
  }
  EXPECT_EQ(arena.reserved(), reserved_before) << "a trace that repeats needs no more";
  EXPECT_GE(arena.reserved(), trace.peak_bytes);
  EXPECT_LT(arena.reserved(), 2 * trace.peak_bytes);
}

}  // namespace
}  // namespace fathom::lab::caching_allocator
