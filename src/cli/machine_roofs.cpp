#include "cli/machine_roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "machine/gpu.h"
#include "machine/machine_id.h"

namespace fathom::cli {
namespace {

std::string threads_text(int threads) { return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"); }

double rate_of(const report::MemoryRoof& roof) { return roof.bytes_per_s; }
double rate_of(const report::ComputeRoof& roof) { return roof.flops_per_s; }

// A roof is the highest rate ever measured, over all kinds of traffic: no correct result lies above it.
template <class Roof>
void raise(std::vector<Roof>& roofs, const std::string& name, double rate) {
  const auto known =
      std::find_if(roofs.begin(), roofs.end(), [&](const Roof& roof) { return roof.name == name; });
  if (known == roofs.end())
    roofs.push_back({name, rate});
  else
    *known = {name, std::max(rate, rate_of(*known))};
}

}  // namespace

report::Roofs roofs_of(const machine::Ceilings& ceilings) {
  report::Roofs roofs{.measured = fmt::format("{}, {}", ceilings.machine_id, ceilings.measured_at)};
  for (const machine::Bandwidth& bandwidth : ceilings.bandwidths)
    if (bandwidth.bytes_per_s.best > 0)
      raise(roofs.memory, fmt::format("{}, {}", to_string(bandwidth.level), threads_text(bandwidth.threads)),
            bandwidth.bytes_per_s.best);
  for (const machine::ArithmeticPeak& peak : ceilings.peaks)
    if (peak.flops_per_s.best > 0 && traits(peak.dtype).round_off > 0)
      raise(roofs.compute,
            fmt::format("{} multiply-add, {}", traits(peak.dtype).name, threads_text(peak.threads)),
            peak.flops_per_s.best);
  return roofs;
}

report::Roofs roofs_of(const machine::GpuCeilings& ceilings) {
  report::Roofs roofs{.measured = fmt::format("{}, {}", ceilings.machine_id, ceilings.measured_at)};
  for (const machine::GpuBandwidth& bandwidth : ceilings.bandwidths)
    if (bandwidth.bytes_per_s.best > 0)
      raise(roofs.memory, std::string(to_string(bandwidth.level)), bandwidth.bytes_per_s.best);
  for (const machine::GpuPeak& peak : ceilings.peaks) {
    if (peak.flops_per_s.best <= 0) continue;
    const bool tensor = peak.unit != machine::GpuUnit::cuda_cores;
    raise(roofs.compute,
          fmt::format("{} {}", tensor && peak.dtype == DType::fp32 ? "tf32" : traits(peak.dtype).name,
                      tensor ? "tensor cores" : "multiply-add"),
          peak.flops_per_s.best);
  }
  return roofs;
}

namespace {

bool is_of_gpu(const std::string& machine_id) {
  return machine::gpu() && machine::gpu_machine_id() == machine_id && machine_id != machine::machine_id();
}

}  // namespace

report::Roofs measured_roofs(const std::string& machine_id, machine::Refresh refresh) {
  if (is_of_gpu(machine_id)) return roofs_of(machine::gpu_ceilings(refresh));
  return roofs_of(machine::ceilings(refresh));
}

report::Roofs known_roofs(const std::string& machine_id) {
  if (is_of_gpu(machine_id)) {
    const machine::GpuFacts& facts = *machine::gpu();
    const auto cached =
        machine::read_gpu_ceilings(machine::gpu_ceilings_path({machine_id, facts.uuid, facts.driver}));
    return cached ? roofs_of(*cached) : report::Roofs{};
  }
  const auto cached = machine::read_ceilings(machine::ceilings_path());
  return cached && cached->machine_id == machine_id ? roofs_of(*cached) : report::Roofs{};
}

}  // namespace fathom::cli
