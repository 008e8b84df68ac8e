#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "machine/features.h"
#include "machine/fma_kernels.h"
#include "machine/huge_page_buffer.h"
#include "machine/stream_kernels.h"

namespace fathom::machine {
namespace {

struct Runnable {
  const StreamKernels* kernels;
  std::vector<Feature> needs;
};

const Runnable kAll[] = {{&kStreamPortable, {}},
                         {&kStreamAvx2, {Feature::avx2}},
                         {&kStreamAvx2FourWays, {Feature::avx2}},
                         {&kStreamAvx512, {Feature::avx512f}},
                         {&kStreamAvx512FourWays, {Feature::avx512f}}};

class Streams : public testing::TestWithParam<Runnable> {
 protected:
  void SetUp() override {
    for (const Feature feature : GetParam().needs)
      if (const auto why = missing(feature)) GTEST_SKIP() << *why;
  }
  static constexpr int64_t kGuard   = 4096;
  static constexpr int64_t kBytes[] = {kStreamStep, 3 * kStreamStep, 17 * kStreamStep, 64 * kStreamStep};
  static StreamKernel of(Traffic traffic) { return GetParam().kernels->of[static_cast<int>(traffic)]; }
};

// A read must load every word exactly once a pass, or its byte count is wrong.
TEST_P(Streams, ReadTakesEveryWordOnceAPass) {
  for (const int64_t bytes : kBytes) {
    HugePageBuffer source(bytes + kGuard);
    auto* words = reinterpret_cast<int64_t*>(source.data());
    fill_integers<int64_t>(words, (bytes + kGuard) / 8, 7, INT64_MIN, INT64_MAX);
    const uint64_t expected =
        std::accumulate(words, words + bytes / 8, uint64_t{0},
                        [](uint64_t all, int64_t word) { return all ^ static_cast<uint64_t>(word); });
    EXPECT_EQ(of(Traffic::read)(nullptr, source.data(), bytes, 1), expected) << bytes;
    EXPECT_EQ(of(Traffic::read)(nullptr, source.data(), bytes, 2), 0u) << bytes;
    EXPECT_EQ(of(Traffic::read)(nullptr, source.data(), bytes, 3), expected) << bytes;
  }
}

TEST_P(Streams, WritesFillTheTargetAndNothingElse) {
  for (const Traffic traffic : {Traffic::write, Traffic::write_nontemporal}) {
    if (!of(traffic)) continue;
    for (const int64_t bytes : kBytes) {
      HugePageBuffer target(bytes + 2 * kGuard);
      std::memset(target.data(), 0xee, target.bytes());
      of(traffic)(target.data() + kGuard, nullptr, bytes, 1);
      const auto untouched   = [](std::byte b) { return b == std::byte{0xee}; };
      const std::byte* first = target.data();
      EXPECT_TRUE(std::all_of(first, first + kGuard, untouched));
      EXPECT_TRUE(std::all_of(first + kGuard + bytes, first + target.bytes(), untouched));
      EXPECT_TRUE(std::none_of(first + kGuard, first + kGuard + bytes, untouched)) << bytes;
    }
  }
}

TEST_P(Streams, CopiesCopyAndTouchNothingElse) {
  for (const Traffic traffic : {Traffic::copy, Traffic::copy_nontemporal}) {
    if (!of(traffic)) continue;
    for (const int64_t bytes : kBytes) {
      HugePageBuffer source(bytes), target(bytes + 2 * kGuard);
      fill_integers<int64_t>(reinterpret_cast<int64_t*>(source.data()), bytes / 8, 11, INT64_MIN, INT64_MAX);
      std::memset(target.data(), 0xee, target.bytes());
      of(traffic)(target.data() + kGuard, source.data(), bytes, 2);
      const auto untouched   = [](std::byte b) { return b == std::byte{0xee}; };
      const std::byte* first = target.data();
      EXPECT_EQ(std::memcmp(first + kGuard, source.data(), bytes), 0) << bytes;
      EXPECT_TRUE(std::all_of(first, first + kGuard, untouched));
      EXPECT_TRUE(std::all_of(first + kGuard + bytes, first + target.bytes(), untouched));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Streams, testing::ValuesIn(kAll), [](const auto& info) {
  std::string name = info.param.kernels->name;
  std::erase_if(name, [](unsigned char c) { return !std::isalnum(c); });
  return name;
});

TEST(Chase, FollowsAsManyPointersAsAsked) {
  for (const int nodes : {1, 2, 7, 8, 9, 31}) {
    std::vector<void*> ring(nodes);
    for (int i = 0; i < nodes; ++i) ring[i] = &ring[(i + 1) % nodes];
    for (const int loads : {0, 1, 7, 8, 9, 100, 1001})
      EXPECT_EQ(chase(&ring[0], loads), &ring[loads % nodes]) << nodes << " nodes, " << loads << " loads";
  }
}

// A chain that the compiler folded, or that ran too rarely or too often, ends at another value. Exact: sums
// of powers of two.
double expected_of(const FmaKernel& kernel, int64_t steps) {
  const std::string isa = kernel.isa;
  const double n        = static_cast<double>(steps);
  const auto starts     = [](int chains) { return chains * (chains + 1) / 2.0; };  // 1 + 2 + ...
  if (isa == "sse2") return starts(7) * (steps % 2 ? -1 : 1) + starts(7) + 7 * n * kFmaTerm;
  if (isa == "avx512_vnni") return 12 * 11 / 2.0 + 12 * n * (4 * 1 * 2);
  if (isa == "avx512_bf16") return starts(12) + 12 * n * 2 * kFmaTerm;
  if (isa == "amx_int8") return 4 * n * (64 * 1 * 2);
  if (isa == "amx_bf16") return 4 * n * 32 * kFmaTerm;
  return starts(12) + 12 * n * kFmaTerm;
}

TEST(FmaKernels, RunEveryStepOfEveryChain) {
  std::string skipped;
  for (const FmaKernel& kernel : fma_kernels()) {
    const bool lacks = std::any_of(kernel.needs.begin(), kernel.needs.end(),
                                   [](Feature feature) { return missing(feature).has_value(); });
    if (lacks) {
      skipped += std::string(" ") + kernel.isa;
      continue;
    }
    for (const int64_t steps : {0, 1, 2, 997, 1024})
      EXPECT_EQ(kernel.run(steps), expected_of(kernel, steps)) << kernel.isa << ", " << steps << " steps";
  }
  if (!skipped.empty()) std::printf("not run, this processor lacks them:%s\n", skipped.c_str());
}

// The flops of a step: chains, times lanes (or products of a tile), times two.
TEST(FmaKernels, CountFlops) {
  const std::map<std::pair<std::string, DType>, double> expected = {
      {{"sse2", DType::fp32}, 7 * 4 + 7 * 4},
      {{"sse2", DType::fp64}, 7 * 2 + 7 * 2},
      {{"avx2+fma", DType::fp32}, 12 * 8 * 2},
      {{"avx2+fma", DType::fp64}, 12 * 4 * 2},
      {{"avx512f", DType::fp32}, 12 * 16 * 2},
      {{"avx512f", DType::fp64}, 12 * 8 * 2},
      {{"avx512_vnni", DType::int8}, 12 * 16 * 4 * 2},
      {{"avx512_bf16", DType::bf16}, 12 * 16 * 2 * 2},
      {{"amx_int8", DType::int8}, 4 * 16 * 16 * 64 * 2},
      {{"amx_bf16", DType::bf16}, 4 * 16 * 16 * 32 * 2}};
  EXPECT_EQ(fma_kernels().size(), expected.size());
  for (const FmaKernel& kernel : fma_kernels())
    EXPECT_EQ(kernel.flops_per_step, expected.at({kernel.isa, kernel.dtype})) << kernel.isa;
}

TEST(HugePageBuffer, IsAlignedWritableAndAsLargeAsAsked) {
  for (const int64_t bytes : {int64_t{1}, int64_t{4097}, int64_t{2} << 20, (int64_t{2} << 20) + 1}) {
    HugePageBuffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20), 0u);
    buffer.data()[0] = buffer.data()[bytes - 1] = std::byte{1};
    EXPECT_EQ(buffer.data()[0], std::byte{1});
  }
}

}  // namespace
}  // namespace fathom::machine
