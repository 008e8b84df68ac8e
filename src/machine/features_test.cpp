#include "machine/features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "machine/gpu.h"
#include "machine/topology.h"

namespace fathom::machine {
namespace {

TEST(Features, AreAllNamedOnceAndDescribed) {
  std::set<std::string_view> names;
  for (const Feature feature : all_features()) {
    EXPECT_TRUE(names.insert(to_string(feature)).second) << to_string(feature);
    EXPECT_FALSE(describe(feature).empty()) << to_string(feature);
  }
  EXPECT_EQ(all_features().size(), static_cast<size_t>(Feature::several_gpus) + 1);
}

TEST(Features, MissingOnesSayWhyAndTheAnswerStays) {
  for (const Feature feature : all_features()) {
    const std::optional<std::string> why = missing(feature);
    EXPECT_TRUE(!why || why->size() > 10) << to_string(feature);
    EXPECT_EQ(missing(feature), why) << to_string(feature);
  }
}

TEST(Features, OfAGpuNeedOne) {
  for (const Feature feature : all_features())
    if (kind(feature) == FeatureKind::gpu && !gpu()) {
      EXPECT_TRUE(missing(feature).value_or("").starts_with("no GPU: ")) << to_string(feature);
      EXPECT_NE(missing(feature)->find(why_no_gpu()), std::string::npos) << to_string(feature);
    }
  if (gpu()) {
    EXPECT_EQ(!missing(Feature::several_gpus), gpu()->count > 1);
  }
}

#if defined(__x86_64__)
// Compares with the compiler's own reading of CPUID.
TEST(Features, AgreeWithTheCompilersRuntime) {
  __builtin_cpu_init();
  EXPECT_EQ(!missing(Feature::sse2), static_cast<bool>(__builtin_cpu_supports("sse2")));
  EXPECT_EQ(!missing(Feature::avx2), static_cast<bool>(__builtin_cpu_supports("avx2")));
  EXPECT_EQ(!missing(Feature::fma), static_cast<bool>(__builtin_cpu_supports("fma")));
  EXPECT_EQ(!missing(Feature::avx512f), static_cast<bool>(__builtin_cpu_supports("avx512f")));
  EXPECT_EQ(!missing(Feature::avx512_vnni), static_cast<bool>(__builtin_cpu_supports("avx512vnni")));
  EXPECT_TRUE(missing(Feature::neon));
}
#endif

}  // namespace
}  // namespace fathom::machine
