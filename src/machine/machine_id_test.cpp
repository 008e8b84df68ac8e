#include "machine/machine_id.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/expect.h"

namespace fathom::machine {
namespace {

Topology named(const char* model_name, const char* microarchitecture, int cores) {
  Topology machine;
  machine.cpu.model_name    = model_name;
  machine.microarchitecture = microarchitecture;
  machine.cores             = cores;
  machine.memory_bytes      = int64_t{24} << 30;
  machine.kernel            = "Linux 6.1.0 x86_64";
  machine.caches            = {{1, "data", 32 << 10, 64, 1, cores}};
  return machine;
}

TEST(Slug, KeepsTheWordsThatTellMachinesApart) {
  EXPECT_EQ(machine_slug(named("AMD EPYC", "zen3", 2)), "epyc-zen3-2c");
  EXPECT_EQ(machine_slug(named("AMD EPYC 7763 64-Core Processor", "zen3", 64)), "epyc-7763-64c");
  EXPECT_EQ(machine_slug(named("Intel(R) Xeon(R) Platinum 8480C", "sapphirerapids", 16)),
            "xeon-platinum-8480c-16c");
  EXPECT_EQ(machine_slug(named("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", "", 6)), "i7-9750h-6c");
  EXPECT_EQ(machine_slug(named("", "", 1)), "cpu-1c");
  EXPECT_EQ(machine_slug(named("../../etc/x", "", 1)).find('/'), std::string::npos);
}

TEST(Slug, OfAGpuIsItsName) {
  EXPECT_EQ(gpu_slug("NVIDIA H200"), "h200");
  EXPECT_EQ(gpu_slug("NVIDIA H100 80GB HBM3"), "h100-80gb-hbm3");
  EXPECT_EQ(gpu_slug("NVIDIA A100-SXM4-80GB"), "a100-sxm4-80gb");
  EXPECT_EQ(gpu_slug("NVIDIA GeForce RTX 4090"), "rtx-4090");
  EXPECT_EQ(gpu_slug("Tesla V100-SXM2-16GB"), "v100-sxm2-16gb");
  EXPECT_EQ(gpu_slug("NVIDIA GB200"), "gb200");
  EXPECT_EQ(gpu_slug(""), "gpu");
  EXPECT_EQ(gpu_slug("../../etc/x").find('/'), std::string::npos);
}

TEST(Id, CanBeChosenButNotBeAPath) {
  ASSERT_EQ(setenv("FATHOM_MACHINE", "my_box-1.2", 1), 0);
  EXPECT_EQ(machine_id(), "my_box-1.2");
  EXPECT_EQ(gpu_machine_id(), "my_box-1.2");
  for (const char* bad : {"a/b", "..", ".hidden", "a b"}) {
    ASSERT_EQ(setenv("FATHOM_MACHINE", bad, 1), 0);
    EXPECT_THROW(machine_id(), ContractError) << bad;
  }
  ASSERT_EQ(unsetenv("FATHOM_MACHINE"), 0);
  EXPECT_EQ(machine_id(), machine_slug(topology()));
}

TEST(Identity, ChangesWithWhatSetsCeilingsAndWithNothingElse) {
  const Topology machine = named("AMD EPYC", "zen3", 2);
  const std::string same = machine_identity(machine, {}, 1);
  EXPECT_EQ(same.size(), 16u);

  Topology other = machine;
  other.kernel   = "Linux 6.2.0 x86_64";  // a kernel update
  other.memory_bytes -= 5 << 20;          // and the memory that it reserves
  EXPECT_EQ(machine_identity(other, {}, 1), same);

  EXPECT_NE(machine_identity(machine, {}, 2), same);
  EXPECT_NE(machine_identity(machine, {.virtual_machine = true, .hypervisor = "KVM", .cgroup = {}}, 1), same);
  other = machine, other.cores = 4;
  EXPECT_NE(machine_identity(other, {}, 1), same);
  other = machine, other.caches[0].bytes *= 2;
  EXPECT_NE(machine_identity(other, {}, 1), same);
  other = machine, other.memory_bytes *= 2;
  EXPECT_NE(machine_identity(other, {}, 1), same);
}

}  // namespace
}  // namespace fathom::machine
