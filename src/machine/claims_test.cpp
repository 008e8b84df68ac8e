#include "machine/claims.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom::machine {
namespace {

bool mentions(const std::vector<std::string>& sentences, std::string_view words) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& s) { return s.find(words) != std::string::npos; });
}

Topology metal() {
  Topology machine;
  machine.governor = "performance";
  return machine;
}

TEST(Claims, WithoutCountersNothingIsCounted) {
  const Claims with    = claims(metal(), {}, {.threads = 4}, {});
  const Claims without = claims(metal(), {}, {.threads = 4}, {Feature::perf_hardware});
  EXPECT_TRUE(mentions(with.can, "Counted instructions"));
  EXPECT_FALSE(mentions(with.cannot, "no hardware counters"));
  EXPECT_TRUE(mentions(without.cannot, "no hardware counters"));
  EXPECT_TRUE(mentions(without.can, "callgrind"));
  EXPECT_TRUE(
      mentions(claims(metal(), {}, {}, {Feature::perf_hardware, Feature::callgrind}).cannot, "nor valgrind"));
}

TEST(Claims, AVirtualMachineHasNoClockAndNoCacheOfItsOwn) {
  const Claims virtual_one =
      claims(metal(), {.virtual_machine = true, .hypervisor = "KVM", .cgroup = {}}, {}, {});
  EXPECT_TRUE(mentions(virtual_one.cannot, "Clock frequency"));
  EXPECT_TRUE(mentions(virtual_one.cannot, "last cache"));
  EXPECT_FALSE(mentions(claims(metal(), {}, {}, {}).cannot, "lock"));
  Topology saving = metal();
  saving.governor = "powersave";
  EXPECT_TRUE(mentions(claims(saving, {}, {}, {}).cannot, "powersave"));
}

TEST(Claims, NoiseStealAndPressureAreNamedWithTheirSize) {
  Ceilings measured;
  measured.noise_floor_compute = 0.004;
  measured.noise_floor_memory  = 0.125;
  EXPECT_TRUE(mentions(claims(metal(), {}, measured, {}).cannot, "0.4 %"));
  EXPECT_FALSE(mentions(claims(metal(), {}, measured, {}).cannot, "stolen"));
  measured.steal_share  = 0.03;
  measured.cpu_pressure = 0.5;
  EXPECT_TRUE(mentions(claims(metal(), {}, measured, {}).cannot, "3.0 % of the processors' time was stolen"));
  EXPECT_TRUE(mentions(claims(metal(), {}, measured, {}).cannot, "doctor --refresh"));
}

TEST(Claims, LimitsOfTheGroupAndOneThread) {
  EXPECT_TRUE(mentions(claims(metal(), {}, {.threads = 1}, {}).cannot, "one thread"));
  EXPECT_TRUE(mentions(claims(metal(), {}, {.threads = 8}, {}).can, "1 to 8 threads"));
  const Isolation boxed{.virtual_machine = false, .hypervisor = {}, .cgroup = {.version = "v2", .cpus = 1.5}};
  EXPECT_TRUE(mentions(claims(metal(), boxed, {}, {}).cannot, "1.5 processors"));
}

}  // namespace
}  // namespace fathom::machine
