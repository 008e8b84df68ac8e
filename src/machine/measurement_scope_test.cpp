#include "machine/measurement_scope.h"

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

TEST(MeasurementScope, WithoutCountersNothingIsCounted) {
  const MeasurementScope with    = measurement_scope(metal(), {}, {.threads = 4}, {});
  const MeasurementScope without = measurement_scope(metal(), {}, {.threads = 4}, {Feature::perf_hardware});
  EXPECT_TRUE(mentions(with.can, "Counted instructions"));
  EXPECT_FALSE(mentions(with.cannot, "no hardware counters"));
  EXPECT_TRUE(mentions(without.cannot, "no hardware counters"));
  EXPECT_TRUE(mentions(without.can, "callgrind"));
  EXPECT_TRUE(
      mentions(measurement_scope(metal(), {}, {}, {Feature::perf_hardware, Feature::callgrind}).cannot,
               "nor valgrind"));
}

TEST(MeasurementScope, AVirtualMachineHasNoClockAndNoCacheOfItsOwn) {
  const MeasurementScope virtual_one =
      measurement_scope(metal(), {.virtual_machine = true, .hypervisor = "KVM", .cgroup = {}}, {}, {});
  EXPECT_TRUE(mentions(virtual_one.cannot, "Clock frequency"));
  EXPECT_TRUE(mentions(virtual_one.cannot, "last-level cache"));
  EXPECT_FALSE(mentions(measurement_scope(metal(), {}, {}, {}).cannot, "lock"));
  Topology saving = metal();
  saving.governor = "powersave";
  EXPECT_TRUE(mentions(measurement_scope(saving, {}, {}, {}).cannot, "powersave"));
}

TEST(MeasurementScope, NoiseStealAndPressureAreNamedWithTheirSize) {
  Ceilings measured;
  measured.noise_floor_compute = 0.004;
  measured.noise_floor_memory  = 0.125;
  EXPECT_TRUE(mentions(measurement_scope(metal(), {}, measured, {}).cannot, "0.4 %"));
  EXPECT_FALSE(mentions(measurement_scope(metal(), {}, measured, {}).cannot, "stolen"));
  measured.steal_share  = 0.03;
  measured.cpu_pressure = 0.5;
  EXPECT_TRUE(mentions(measurement_scope(metal(), {}, measured, {}).cannot,
                       "3.0 % of the processors' time was stolen"));
  EXPECT_TRUE(mentions(measurement_scope(metal(), {}, measured, {}).cannot, "doctor --refresh"));
}

TEST(MeasurementScope, LimitsOfTheGroupAndOneThread) {
  EXPECT_TRUE(mentions(measurement_scope(metal(), {}, {.threads = 1}, {}).cannot, "one thread"));
  EXPECT_TRUE(mentions(measurement_scope(metal(), {}, {.threads = 8}, {}).can, "1 to 8 threads"));
  const Isolation boxed{.virtual_machine = false, .hypervisor = {}, .cgroup = {.version = "v2", .cpus = 1.5}};
  EXPECT_TRUE(mentions(measurement_scope(metal(), boxed, {}, {}).cannot, "1.5 processors"));
}

GpuFacts hopper() {
  GpuFacts gpu;
  gpu.major        = 9;
  gpu.max_clock_hz = 1.98e9;
  return gpu;
}

std::vector<GpuRungState> all_rungs(std::optional<std::string> why_not) {
  std::vector<GpuRungState> rungs;
  for (const GpuRung rung : kGpuRungs) rungs.push_back({rung, why_not, ""});
  return rungs;
}

TEST(GpuClaims, WithoutRungsNothingIsCounted) {
  GpuCeilings quiet;
  quiet.clock_settled         = true;
  const MeasurementScope with = gpu_measurement_scope(hopper(), quiet, all_rungs({}));
  const MeasurementScope without =
      gpu_measurement_scope(hopper(), quiet, all_rungs("counters are forbidden"));
  EXPECT_TRUE(mentions(with.can, "Counted bytes"));
  EXPECT_FALSE(mentions(with.cannot, "Counted bytes"));
  EXPECT_TRUE(mentions(without.cannot, "counters are forbidden"));
  EXPECT_FALSE(mentions(without.can, "timeline"));
  EXPECT_TRUE(mentions(gpu_measurement_scope(hopper(), quiet, {}).cannot, "it was not tried"));
  EXPECT_FALSE(mentions(with.cannot, "settle"));
  EXPECT_TRUE(mentions(gpu_measurement_scope(hopper(), {}, {}).cannot, "did not settle"));
}

TEST(GpuClaims, HeatAndPowerAreNamedApart) {
  GpuCeilings ceilings;
  ceilings.peaks = {{DType::bf16, GpuUnit::cublaslt, {}, {.sm_clock_hz = 1.4e9, .clock_event_reasons = 0x4}}};
  MeasurementScope scope = gpu_measurement_scope(hopper(), ceilings, {});
  EXPECT_TRUE(mentions(scope.cannot, "at 1400 of 1980 MHz in bf16"));
  EXPECT_FALSE(mentions(scope.cannot, "too hot"));
  ceilings.peaks[0].during = {
      .sm_clock_hz         = 1.97e9,
      .clock_event_reasons = 0x4};  // at the power limit, but hardly below the maximum clock
  EXPECT_FALSE(mentions(gpu_measurement_scope(hopper(), ceilings, {}).cannot, "power limit"));
  ceilings.peaks[0].during.clock_event_reasons = 0x40;
  EXPECT_TRUE(mentions(gpu_measurement_scope(hopper(), ceilings, {}).cannot, "too hot"));
}

TEST(GpuClaims, CompanyGapsAndGenerations) {
  GpuCeilings ceilings;
  ceilings.other_processes     = 2;
  ceilings.not_measured        = {{"fp8 by cublaslt", "cuBLAS is missing"}};
  const MeasurementScope scope = gpu_measurement_scope(hopper(), ceilings, {});
  EXPECT_TRUE(mentions(scope.cannot, "2 other processes"));
  EXPECT_TRUE(mentions(scope.cannot, "fp8 by cublaslt"));
  EXPECT_TRUE(mentions(scope.cannot, "no Blackwell"));
  EXPECT_FALSE(mentions(scope.cannot, "TMA"));
  GpuFacts pair  = hopper();
  pair.count     = 2;
  ceilings.peers = {{0, 1, true, {}}, {1, 0, true, {}}};
  EXPECT_TRUE(mentions(gpu_measurement_scope(pair, ceilings, {}).can, "2 of 2 directed pairs"));
}

}  // namespace
}  // namespace fathom::machine
