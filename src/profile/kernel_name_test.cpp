#include "profile/kernel_name.h"

#include <gtest/gtest.h>

namespace fathom::profile {
namespace {

TEST(KernelName, IsWhatTheSourceSays) {
  EXPECT_EQ(
      readable_kernel_name("_ZN6fathom3lab13transpose_gpu12_GLOBAL__N_111tile_kernelENS_4ViewIKfLi2EEE"),
      "transpose_gpu::tile_kernel");
  EXPECT_EQ(readable_kernel_name("_ZN6fathom3lab13transpose_gpu12_GLOBAL__N_111tile_kernelILi32EEEvPf"),
            "transpose_gpu::tile_kernel<32>");
  // nvcc gives each file's anonymous namespace a name of its own.
  EXPECT_EQ(
      readable_kernel_name("_ZN6fathom3lab5x_gpu36_GLOBAL__N__566f14cd_4_n_cu_8598934212plain_kernelEPf"),
      "x_gpu::plain_kernel");
  EXPECT_EQ(readable_kernel_name("_ZN6fathom3sumINS_4ViewIfLi1EEEEEvT_"), "sum<View<float, 1> >");
  EXPECT_EQ(readable_kernel_name("sm90_xmma_gemm_bf16bf16_bf16f32"), "sm90_xmma_gemm_bf16bf16_bf16f32");
  EXPECT_EQ(readable_kernel_name("main_kernel"), "main_kernel");
  EXPECT_EQ(readable_kernel_name(""), "");
  EXPECT_EQ(readable_kernel_name(nullptr), "");
}

// A template argument may contain parentheses.
TEST(KernelName, DropsOnlyTheParameters) {
  EXPECT_EQ(readable_kernel_name("_Z5applyIPFvfEEvT_"), "apply<void (*)(float)>");
  EXPECT_EQ(readable_kernel_name("_ZN12_GLOBAL__N_15applyIXadL_ZNS_1fEvEEEEvv"), "apply<&f>");
}

TEST(ApiName, LosesTheVersionOfCuda) {
  EXPECT_EQ(readable_api_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(readable_api_name("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync");
  EXPECT_EQ(readable_api_name("cuMemcpyHtoDAsync_v2"), "cuMemcpyHtoDAsync_v2");
  EXPECT_EQ(readable_api_name("cuLaunchKernel_ptsz"), "cuLaunchKernel");
  EXPECT_EQ(readable_api_name("cudaLaunchKernelExC_v11060"), "cudaLaunchKernelExC");
  EXPECT_EQ(readable_api_name(""), "");
}

}  // namespace
}  // namespace fathom::profile
