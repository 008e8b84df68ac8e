#include "profile/kernel_filter.h"

#include <gtest/gtest.h>

namespace fathom::profile {
namespace {

std::vector<lab::KernelRecord> kernels(std::initializer_list<const char*> names) {
  std::vector<lab::KernelRecord> all;
  for (const char* name : names) all.push_back({.name = name});
  return all;
}

size_t taken(const char* expression, std::initializer_list<const char*> names) {
  std::string left_out;
  return KernelFilter::parse(expression)->of(kernels(names), left_out).size();
}

TEST(KernelFilter, TakesWhatMatchesAnywhereInTheName) {
  EXPECT_EQ(taken("", {"a", "b"}), 2U);
  EXPECT_EQ(taken("regex:", {"a", "b"}), 2U);
  EXPECT_EQ(taken("gemm", {"gemm_bf16_kernel<128>", "norm_kernel", "split_gemm"}), 2U);
  EXPECT_EQ(taken("regex:^gemm.*<128>$", {"gemm_bf16_kernel<128>", "gemm_bf16_kernel<64>"}), 1U);
  EXPECT_EQ(taken("a|c", {"a", "b", "c"}), 2U);
  EXPECT_EQ(taken("x", {}), 0U);
  EXPECT_TRUE(KernelFilter().takes("anything"));
  EXPECT_TRUE(KernelFilter::parse("")->takes_all());
}

TEST(KernelFilter, NamesWhatItLeavesOut) {
  std::string left_out;
  (void)KernelFilter::parse("regex:^a")->of(kernels({"a", "b", "b", "c"}), left_out);
  EXPECT_EQ(left_out, "1 of 4 kernels match '^a'; left out: b, c");
  (void)KernelFilter::parse("")->of(kernels({"a", "b"}), left_out);
  EXPECT_EQ(left_out, "");
}

TEST(KernelFilter, RefusesWhatIsNoExpression) {
  for (const char* bad : {"(", "[", "a{", "*"})
    EXPECT_NE(KernelFilter::parse(bad).error().message.find("is no regular expression"), std::string::npos)
        << bad;
}

}  // namespace
}  // namespace fathom::profile
