#include "machine/measurement_scope.h"

#include <fmt/format.h>

#include <algorithm>

namespace fathom::machine {
namespace {

// Report stolen time from this share on: it delays the slowest of several threads, so it affects wall time.
constexpr double kNotableSteal = 0.002;

// Report pressure from this share on: ceilings may then be far too low.
constexpr double kNotablePressure = 0.1;

// Report a clock under load below this share of the maximum: a short kernel runs at another clock.
constexpr double kNotableCap = 0.98;

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.1 ? 1 : 0); }

}  // namespace

std::vector<Feature> lacking_features() {
  std::vector<Feature> lacking;
  for (const Feature feature : all_features())
    if (missing(feature)) lacking.push_back(feature);
  return lacking;
}

MeasurementScope measurement_scope(const Topology& machine, const Isolation& isolation,
                                   const Ceilings& ceilings, const std::vector<Feature>& lacking) {
  MeasurementScope scope;
  const auto can    = [&](std::string sentence) { scope.can.push_back(std::move(sentence)); };
  const auto cannot = [&](std::string sentence) { scope.cannot.push_back(std::move(sentence)); };
  const auto has = [&](Feature f) { return std::find(lacking.begin(), lacking.end(), f) == lacking.end(); };

  can("Which of two variants is faster, by paired and interleaved rounds, with an interval.");
  const std::string compute = percent(ceilings.noise_floor_compute),
                    memory  = percent(ceilings.noise_floor_memory);
  cannot(fmt::format(
      "Differences within the noise: 40 pairs of identical 1 ms calls on one thread agreed to {} in "
      "arithmetic and {} in memory traffic when the ceilings were measured. Longer runs resolve smaller "
      "differences.",
      compute, memory));

  can("Shares of measured limits: bandwidth of each cache level and DRAM, arithmetic peaks, load latency.");
  if (ceilings.cpu_pressure && *ceilings.cpu_pressure >= kNotablePressure)
    cannot(fmt::format(
        "Those shares, for now: some task waited for a processor during {} of the time in which the ceilings "
        "were measured, so they are too low. Run `fathom doctor --refresh` on a quiet machine.",
        percent(*ceilings.cpu_pressure)));
  if (!ceilings.huge_pages)
    cannot("DRAM and latency ceilings free of address translation: the kernel gave no huge pages.");

  if (ceilings.threads > 1)
    can(fmt::format("Scaling from 1 to {} threads.", ceilings.threads));
  else
    cannot("Thread scaling: only one thread is available.");
  if (isolation.cgroup.cpus)
    cannot(fmt::format("Sustained times of more than {:.3g} processors: the control group throttles beyond.",
                       *isolation.cgroup.cpus));
  if (machine.numa_nodes == 1)
    cannot("Costs of remote memory: one NUMA node is visible.");
  else
    can(fmt::format("Costs of remote memory, over {} NUMA nodes.", machine.numa_nodes));

  if (has(Feature::perf_hardware)) {
    can("Counted instructions, cycles and cache misses in the process itself.");
  } else {
    cannot(
        "Counted bytes, cache or branch misses, or a top-down breakdown: no hardware counters. Bytes are "
        "declared.");
    if (has(Feature::callgrind))
      can("Instruction counts, exact, by callgrind (blind to vector width, caches and AVX-512).");
    else
      cannot("Instruction counts: neither counters nor valgrind.");
  }
  if (has(Feature::rusage_thread) && has(Feature::schedstat))
    can("What disturbed a run: switches, faults, time spent waiting for a processor, stolen time.");

  if (isolation.virtual_machine)
    cannot("Clock frequency, cycles or turbo: a virtual machine does not show them.");
  else if (!machine.governor)
    cannot("Clock frequency: cpufreq is not readable.");
  else if (*machine.governor != "performance")
    cannot(fmt::format("A steady clock: the governor is {}, not performance (tools/tune_host sets it).",
                       *machine.governor));

  if (isolation.virtual_machine) {
    cannot("That the last-level cache and DRAM were ours alone: other guests of the host may use them.");
    cannot("The disk as a device: reads past our page cache may come from the host's memory.");
  }
  if (ceilings.steal_share >= kNotableSteal)
    cannot(
        fmt::format("Undisturbed wall time over several threads: {} of the processors' time was stolen while "
                    "the ceilings were measured.",
                    percent(ceilings.steal_share)));

  if (!has(Feature::avx512f)) cannot("AVX-512 variants: skipped, the processor lacks it.");
  if (!has(Feature::amx_bf16)) cannot("AMX variants: skipped, the processor or kernel lacks it.");
  if (has(Feature::openblas) || has(Feature::onednn))
    can(fmt::format("Comparison with {}.", has(Feature::openblas) && has(Feature::onednn)
                                               ? "OpenBLAS and oneDNN"
                                           : has(Feature::openblas) ? "OpenBLAS"
                                                                    : "oneDNN"));
  else
    cannot("Comparison with a library: neither OpenBLAS nor oneDNN loads.");
  if (!has(Feature::cuda_driver)) cannot("Anything about GPUs: no NVIDIA driver.");
  return scope;
}

MeasurementScope gpu_measurement_scope(const GpuFacts& gpu, const GpuCeilings& ceilings,
                                       const std::vector<GpuRungState>& rungs) {
  MeasurementScope scope;
  const auto can    = [&](std::string sentence) { scope.can.push_back(std::move(sentence)); };
  const auto cannot = [&](std::string sentence) { scope.cannot.push_back(std::move(sentence)); };
  // Why a rung does not work; absent where it works.
  const auto lacks = [&](GpuRung rung) -> std::optional<std::string> {
    for (const GpuRungState& state : rungs)
      if (state.rung == rung) return state.why_not;
    return "it was not tried";
  };

  can("Which of two kernels is faster, by the GPU's own events in paired rounds, in time and in cycles.");
  can("Shares of measured limits: DRAM, L2, L1 and shared memory, arithmetic by type, latencies, the link.");
  if (!ceilings.clock_settled)
    cannot(
        "Those shares to better than the clock's drift: it did not settle within 1 % in 3 s before "
        "measuring.");
  bool throttled        = false;
  const GpuPeak* lowest = nullptr;  // of those at the power limit
  const auto look       = [&](const GpuSensors& during) {
    throttled = throttled || is_throttled(during.clock_event_reasons.value_or(0));
  };
  for (const GpuBandwidth& entry : ceilings.bandwidths) look(entry.during);
  for (const GpuPeak& entry : ceilings.peaks) {
    look(entry.during);
    if (entry.unit != GpuUnit::cuda_cores && is_power_capped(entry.during.clock_event_reasons.value_or(0)) &&
        entry.during.sm_clock_hz && *entry.during.sm_clock_hz < kNotableCap * gpu.max_clock_hz &&
        (!lowest || *entry.during.sm_clock_hz < *lowest->during.sm_clock_hz))
      lowest = &entry;
  }
  if (throttled)
    cannot(
        "Those shares, for now: the GPU was too hot or power-limited while some were measured. Run "
        "`fathom doctor --refresh` when it has cooled.");
  if (lowest)
    cannot(fmt::format(
        "The tensor cores at their full clock: under load this GPU keeps to its power limit, at {:.0f} "
        "of {:.0f} MHz in {} products.",
        *lowest->during.sm_clock_hz / 1e6, gpu.max_clock_hz / 1e6, name_of(*lowest)));
  if (ceilings.other_processes > 0)
    cannot(fmt::format(
        "An undisturbed GPU: {} other process{} had a context on it when the ceilings were measured.",
        ceilings.other_processes, ceilings.other_processes == 1 ? "" : "es"));

  if (const auto why = lacks(GpuRung::range_profiler))
    cannot(fmt::format("Counted bytes, instructions or stalls of a kernel: {}. Bytes are declared.", *why));
  else
    can("Counted bytes, instructions and stalls of a kernel, beside the declared ones.");
  if (!lacks(GpuRung::pm_sampling)) can("A timeline of the GPU's units, a point every 100 us.");
  if (const auto why = lacks(GpuRung::activity))
    cannot(fmt::format("Start, end and resources of single kernels: {}.", *why));
  else
    can("Start, end, registers and grid of every kernel, and copies beside them.");
  if (const auto why = lacks(GpuRung::nvml))
    cannot(fmt::format("Clock, power, temperature or energy of a run: {}.", *why));
  else
    can("Clock, power and temperature of a run, and energy of those longer than 100 ms.");

  if (gpu.count > 1) {
    const auto direct = std::count_if(ceilings.peers.begin(), ceilings.peers.end(),
                                      [](const PeerRate& peer) { return peer.direct; });
    can(fmt::format("Scaling over {} GPUs; {} of {} directed pairs copy without the host.", gpu.count, direct,
                    gpu.count * (gpu.count - 1)));
  } else {
    cannot("Scaling over GPUs: one is visible.");
  }
  if (!gpu.tma()) cannot("Variants with TMA, clusters or wgmma: skipped, the GPU lacks them.");
  if (!gpu.tcgen05()) cannot("Variants with tcgen05 or fp4: skipped, the GPU is no Blackwell.");
  if (host_memory(gpu) == HostMemory::coherent)
    can(fmt::format("What a shared address space is worth: {}reads the host's memory by the line.",
                    superchip(gpu).empty() ? "the GPU " : superchip(gpu) + " "));
  else
    cannot("What a coherent link to the host is worth: over PCIe there is none.");
  for (const NotMeasured& missing : ceilings.not_measured)
    cannot(fmt::format("Shares of {}: not measured, {}.", missing.what, missing.why));
  return scope;
}

}  // namespace fathom::machine
