#include "lab/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "cuda/device.h"

namespace fathom {
namespace {

TEST(Arena, FillsAreReproducibleAndDifferBetweenInputsAndSeeds) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{97}, int64_t{4096}}) {
    Arena arena;
    const auto a = arena.input<float>({n}, Uniform{-1, 1});
    const auto b = arena.input<float>({n}, Uniform{-1, 1});
    arena.fill(7);
    const uint64_t seven = arena.input_checksum();
    if (n > 1) {
      EXPECT_NE(0, std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())));
    }
    arena.fill(8);
    if (n > 1) {
      EXPECT_NE(arena.input_checksum(), seven);
    }
    arena.fill(7);
    EXPECT_EQ(arena.input_checksum(), seven);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_GE(a(i), -1);
      EXPECT_LT(a(i), 1);
    }
  }
}

TEST(Arena, GeneratedInputsSeeThoseDeclaredBefore) {
  Arena arena;
  const auto plain  = arena.input<int32_t>({5}, Permutation{});
  const auto sorted = arena.input<int32_t>({5}, generate<int32_t>([plain](int32_t* out, int64_t n, uint64_t) {
                                             std::copy(plain.data(), plain.data() + n, out);
                                             std::sort(out, out + n);
                                           }));
  arena.fill(3);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(sorted(i), i);
}

// The pattern must be no number in any type an output may have, and must be told from what a call wrote.
template <class T>
void expect_poison(bool is_float) {
  for (const int64_t n :
       {int64_t{1}, int64_t{3}, int64_t{1021}, (int64_t{9} << 20) / static_cast<int64_t>(sizeof(T)) + 1}) {
    Arena arena;
    const auto out = arena.output<T>({n});
    arena.poison(0x1234);
    for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
      EXPECT_TRUE(arena.is_poison(&out(i), sizeof(T))) << i << " of " << n;
      if (is_float && sizeof(T) >= 4) {
        EXPECT_TRUE(std::isnan(static_cast<double>(out(i))));
      }
    }
    out(n - 1) = T(1);
    EXPECT_FALSE(arena.is_poison(&out(n - 1), sizeof(T)));
    arena.poison(0x1235);
    EXPECT_TRUE(arena.is_poison(&out(n - 1), sizeof(T)));
    EXPECT_FALSE(arena.broken_guard());
  }
}
TEST(Arena, PoisonFloat) { expect_poison<float>(true); }
TEST(Arena, PoisonDouble) { expect_poison<double>(true); }
TEST(Arena, PoisonInt64) { expect_poison<int64_t>(false); }
TEST(Arena, PoisonByte) { expect_poison<uint8_t>(false); }

TEST(Arena, PoisonIsStaleUnderAnotherNonce) {
  Arena arena;
  const auto out = arena.output<float>({8});
  arena.poison(1);
  float kept;
  std::memcpy(&kept, &out(0), 4);
  arena.poison(2);
  std::memcpy(&out(0), &kept, 4);  // somebody put the old pattern back
  EXPECT_FALSE(arena.is_poison(&out(0), 4));
}

TEST(Arena, GuardBandsNoticeOneByteOnEitherSide) {
  for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{64}, (int64_t{4} << 20) + 3}) {
    Arena arena;
    arena.input<uint8_t>({5}, Uniform{0, 255});
    const auto out = arena.output<uint8_t>({n});
    ASSERT_FALSE(arena.broken_guard());
    volatile uint8_t* bytes = out.data();
    for (const int64_t at : {int64_t{-1}, n}) {
      const uint8_t before = bytes[at];
      bytes[at]            = static_cast<uint8_t>(before ^ 1);
      ASSERT_TRUE(arena.broken_guard()) << at;
      EXPECT_NE(arena.broken_guard()->find("output 0"), std::string::npos);
      arena.repair_guards();
      EXPECT_FALSE(arena.broken_guard());
      EXPECT_EQ(bytes[at], before);
    }
  }
}

TEST(Arena, ChecksumSeesOneBitOfAnyInput) {
  Arena arena;
  const auto a = arena.input<float>({33}, Uniform{});
  const auto b = arena.input<int64_t>({33}, Uniform{0, 9});
  arena.output<float>({33});
  arena.fill(1);
  const uint64_t before = arena.input_checksum();
  const_cast<int64_t*>(b.data())[32] ^= 1;
  EXPECT_NE(arena.input_checksum(), before);
  const_cast<int64_t*>(b.data())[32] ^= 1;
  EXPECT_EQ(arena.input_checksum(), before);
  arena.poison(3);
  EXPECT_EQ(arena.input_checksum(), before) << "outputs are not inputs";
  (void)a;
}

TEST(Arena, OverlapIsFoundBetweenOutputsAndAnything) {
  std::vector<float> memory(64);
  Arena arena;
  arena.adopt(View<const float, 1>(memory.data(), {32}), Role::input);
  EXPECT_FALSE(arena.overlap());
  arena.adopt(View<float, 1>(memory.data() + 32, {32}), Role::output);
  EXPECT_FALSE(arena.overlap()) << "neighbours do not overlap";
  arena.adopt(View<float, 1>(memory.data() + 31, {1}), Role::output);
  ASSERT_TRUE(arena.overlap());
  EXPECT_EQ(*arena.overlap(), "output 1 overlaps input 0");
}

TEST(Arena, BuffersAreAlignedAndDoNotAliasModulo4KiB) {
  Arena arena;
  std::set<uintptr_t> offsets;
  for (int i = 0; i < 8; ++i) {
    const auto view = arena.output<float>({int64_t{1} << 20}, i % 2 ? Pages::small : Pages::huge);
    const auto at   = reinterpret_cast<uintptr_t>(view.data());
    EXPECT_EQ(at % 64, 0u);
    offsets.insert(at % 4096);
  }
  EXPECT_EQ(offsets.size(), 8u);
}

TEST(Arena, MoreThanThereIsIsRefusedBeforeItHurts) {
  Arena arena;
  EXPECT_THROW(arena.output<double>({int64_t{1} << 45}), NotEnoughMemory);
  // 2^32 x 2^32 elements are 0 in 64 bits, and 2^61 doubles 0 bytes.
  EXPECT_THROW(arena.output<double>({int64_t{1} << 32, int64_t{1} << 32}), NotEnoughMemory);
  EXPECT_THROW(arena.output<double>({int64_t{1} << 61}), NotEnoughMemory);
}

TEST(Arena, CopyOfOutputsKeepsTheirPlaces) {
  Arena arena;
  const auto a = arena.output<float>({3});
  arena.workspace<float>({100});
  const auto b = arena.output<double>({2});
  for (int i = 0; i < 3; ++i) a(i) = static_cast<float>(i);
  for (int i = 0; i < 2; ++i) b(i) = i + 10;
  std::vector<std::byte> copy;
  arena.copy_outputs_to(copy);
  ASSERT_EQ(copy.size(), 28u);
  double second;
  std::memcpy(&second, copy.data() + arena.offset_in_copy(&b(1)), 8);
  EXPECT_EQ(second, 11);
  EXPECT_EQ(arena.output_bytes(), 28);
}

TEST(Arena, AnotherMappingFindsASharedBuffer) {
  Arena arena;
  const auto in = arena.input<float>({1000}, Uniform{-1, 1}, Pages::huge, Place::shared);
  arena.fill(7);
  const Arena::Shared shared = arena.shared(in.data());
  ASSERT_EQ(shared.bytes, 4000);
  const int fd = open(shared.allocation.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0) << shared.allocation;
  std::vector<float> seen(1000);
  uint64_t guard = 0;
  EXPECT_EQ(pread(fd, seen.data(), 4000, shared.offset), 4000);
  EXPECT_EQ(pread(fd, &guard, 8, shared.offset - 8), 8);
  close(fd);
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), in.data()));
  EXPECT_EQ(guard, shared.guard);
  EXPECT_FALSE(arena.broken_guard().has_value());
  EXPECT_THROW(arena.shared(in.data() + 1), ContractError) << "no buffer begins there";
  const auto own = arena.output<float>({4});
  EXPECT_THROW(arena.shared(own.data()), ContractError) << "nobody else can open it";
}

// A device on the host that records the requests about its memory.
class HostedDevice final : public Device {
 public:
  DeviceId id() const override { return {}; }
  void make_current() override {}
  void* allocate(int64_t bytes) override {
    return std::aligned_alloc(256, (static_cast<size_t>(bytes) + 255) / 256 * 256);
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void pin(void*, int64_t) override {}
  void unpin(void*) noexcept override {}
  void to_device(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void to_host(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void set_words(void* to, int64_t bytes, uint32_t word) override {
    for (int64_t i = 0; i < bytes; i += 4)
      std::memcpy(static_cast<std::byte*>(to) + i, &word,
                  static_cast<size_t>(std::min<int64_t>(4, bytes - i)));
    done.push_back("set " + std::to_string(bytes));
  }
  void fill_uniform(void*, int64_t, DType, uint64_t, double, double) override {}
  void fill_normal(void*, int64_t, DType, uint64_t, double, double) override {}
  uint64_t checksum(const void*, int64_t) override { return 0; }
  void flush_l2() override { done.push_back("flush"); }
  void enqueue_to_device(void* to, const void* from, int64_t bytes) override { to_device(to, from, bytes); }
  std::string ipc_handle(const void*) override { return "\x01\xff"; }
  void set_aside_l2(int64_t) override {}
  std::optional<std::string> restore_l2() override { return {}; }
  StreamRef stream() override { return nullptr; }
  void synchronize() override {}

  std::vector<std::string> done;
};

TEST(Arena, ADevicesBufferIsSharedByItsAllocation) {
  HostedDevice device;
  Arena arena(&device);
  const auto out             = arena.output<float>({5});
  const Arena::Shared shared = arena.shared(out.data());
  EXPECT_EQ(shared.allocation, "01ff");
  EXPECT_EQ(shared.bytes, 20);
  uint64_t guard = 0;
  std::memcpy(&guard, reinterpret_cast<const std::byte*>(out.data()) - 8, 8);
  EXPECT_EQ(guard, shared.guard);
}

TEST(Arena, NoPoisonOfALargeWorkspaceStaysInADevicesCaches) {
  for (const int64_t large : {int64_t{2} << 20, int64_t{8} << 20}) {
    HostedDevice device;
    Arena arena(&device);
    arena.output<float>({5});
    arena.workspace<std::byte>({large});
    arena.output<float>({3});
    arena.workspace<std::byte>({large / 4});
    arena.poison(6);
    const std::string first = "set " + std::to_string(large), second = "set " + std::to_string(large / 4);
    // Outputs behind the flush: each variant writes them, and finds as many dirty lines as it leaves.
    EXPECT_EQ(device.done, large < 8 << 20
                               ? std::vector<std::string>({first, second, "set 20", "set 12"})
                               : std::vector<std::string>({first, second, "flush", "set 20", "set 12"}));
  }
}

TEST(Arena, OnAGpuFindsWritesOutsideAndCopiesToItsTwin) {
  Device* device = find_device({0});
  if (!device) GTEST_SKIP() << why_no_device({0});
  const auto declare = [](Arena& arena) {
    (void)arena.input<float>({1000}, Uniform{-1, 1});
    return arena.output<bf16>({777});
  };
  Arena arena(device), twin;
  const auto out    = declare(arena);
  const auto mirror = declare(twin);
  arena.fill(3);
  arena.poison(9);
  EXPECT_EQ(arena.broken_guard(), std::nullopt);
  arena.copy_to(twin);
  EXPECT_TRUE(twin.is_poison(&mirror(776), 2));
  const uint64_t inputs = arena.input_checksum();
  const uint16_t zero   = 0;
  device->to_device(const_cast<bf16*>(out.data()) + 777, &zero, 2);
  ASSERT_TRUE(arena.broken_guard());
  EXPECT_NE(arena.broken_guard()->find("output 0 was written about 0 bytes past the end"), std::string::npos)
      << *arena.broken_guard();
  arena.repair_guards();
  EXPECT_EQ(arena.broken_guard(), std::nullopt);
  EXPECT_EQ(arena.input_checksum(), inputs);
  arena.fill(4);
  EXPECT_NE(arena.input_checksum(), inputs);
}

}  // namespace
}  // namespace fathom
