#include "machine/gpu.h"

#include <gtest/gtest.h>

#include "machine/gpu_ceiling_kernels.h"

namespace fathom::machine {
namespace {

GpuFacts of_capability(int major, int minor) {
  GpuFacts facts;
  facts.major = major;
  facts.minor = minor;
  return facts;
}

TEST(GpuFacts, FeaturesFollowTheCapability) {
  const GpuFacts ampere = of_capability(8, 0), ada = of_capability(8, 9), hopper = of_capability(9, 0),
                 blackwell = of_capability(10, 0), workstation = of_capability(12, 0);
  EXPECT_FALSE(ampere.fp8_tensor());
  EXPECT_TRUE(ada.fp8_tensor());
  EXPECT_FALSE(ada.tma());
  EXPECT_TRUE(hopper.tma() && hopper.wgmma() && hopper.fp8_tensor());
  EXPECT_FALSE(hopper.fp4_tensor() || hopper.tcgen05());
  EXPECT_TRUE(blackwell.tma() && blackwell.fp4_tensor() && blackwell.tcgen05());
  EXPECT_FALSE(blackwell.wgmma());  // Hopper only
  EXPECT_TRUE(workstation.fp4_tensor() && workstation.tma());
  EXPECT_FALSE(workstation.tcgen05());
}

TEST(GpuFacts, DramOnPaperIsTwoTransfersAClock) {
  GpuFacts h200;
  h200.max_memory_clock_hz = 3201e6;
  h200.memory_bus_bits     = 6144;
  EXPECT_NEAR(h200.dram_bytes_per_s(), 4.917e12, 1e9);
}

TEST(HostMemory, IsCoherentOnlyThroughTheHostsPageTables) {
  GpuFacts facts = of_capability(9, 0);
  EXPECT_EQ(host_memory(facts), HostMemory::staged);
  facts.host_page_tables = true;  // has no meaning without pageable_access
  EXPECT_EQ(host_memory(facts), HostMemory::staged);
  facts.pageable_access = true;
  EXPECT_EQ(host_memory(facts), HostMemory::coherent);
  facts.host_page_tables = false;
  EXPECT_EQ(host_memory(facts), HostMemory::migrated);
  for (const HostMemory kind : {HostMemory::staged, HostMemory::migrated, HostMemory::coherent})
    EXPECT_GT(strategy(kind).size(), 20u) << to_string(kind);
}

TEST(Superchip, IsNamedAfterCpuAndGpu) {
  GpuFacts card = of_capability(9, 0);
  EXPECT_EQ(superchip(card), "");
  card.pageable_access = true;  // a PCIe card under a kernel with heterogeneous memory management
  EXPECT_EQ(superchip(card), "");
  card.host_page_tables = true;
  EXPECT_EQ(superchip(card), "Grace Hopper");
  card.major = 10;
  EXPECT_EQ(superchip(card), "Grace Blackwell");
  card.major = 7;  // Volta on POWER9 uses the host's page tables too, but is no Grace
  EXPECT_EQ(superchip(card), "");
}

TEST(CudaVersion, IsMajorAndMinor) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12090), "12.9");
}

TEST(Gpu, IsThereOrSaysWhyNot) {
  if (const GpuFacts* facts = gpu()) {
    EXPECT_TRUE(facts->uuid.starts_with("GPU-")) << facts->uuid;
    EXPECT_EQ(facts->uuid.size(), 40u);
    EXPECT_GT(facts->multiprocessors, 0);
    EXPECT_GT(facts->l2_bytes, 0);
    EXPECT_GT(facts->max_clock_hz, 1e8);
    EXPECT_EQ(facts->peer_access.size(), static_cast<size_t>(facts->count));
    EXPECT_EQ(gpu(), facts);
  } else {
    EXPECT_GT(why_no_gpu().size(), 20u);
  }
}

TEST(NextLine, GoesThroughEveryLineOnce) {
  for (const int64_t lines : {1, 2, 64, 4096, 1 << 17}) {
    std::vector<bool> seen(lines);
    int64_t line = 0;
    for (int64_t i = 0; i < lines; ++i) {
      ASSERT_FALSE(seen[line]) << "line " << line << " of " << lines << " again after " << i;
      seen[line] = true;
      line       = next_line(line, lines);
      ASSERT_TRUE(line >= 0 && line < lines);
    }
    EXPECT_EQ(line, 0);
  }
}

TEST(NextLine, IsFarAway) {
  constexpr int64_t kLines = 1 << 20;
  int near                 = 0;
  for (int64_t line = 0; line < 1000; ++line) near += std::abs(next_line(line, kLines) - line) < 64;
  EXPECT_LT(near, 5);
}

}  // namespace
}  // namespace fathom::machine
