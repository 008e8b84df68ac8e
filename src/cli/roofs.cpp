#include "cli/roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace fathom::cli {
namespace {

std::string threads_text(int threads) { return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"); }

double rate_of(const lab::MemoryRoof& roof) { return roof.bytes_per_s; }
double rate_of(const lab::ComputeRoof& roof) { return roof.flops_per_s; }

}  // namespace

lab::Roofs roofs_of(const machine::Ceilings& ceilings) {
  lab::Roofs roofs{.measured = fmt::format("{}, {}", ceilings.machine_id, ceilings.measured_at)};
  // A roof is the most that was ever seen, whatever the traffic: nothing honest lies above it.
  const auto raise = [](auto& list, const std::string& name, double rate) {
    const auto known =
        std::find_if(list.begin(), list.end(), [&](const auto& roof) { return roof.name == name; });
    if (known == list.end())
      list.push_back({name, rate});
    else
      *known = {name, std::max(rate, rate_of(*known))};
  };
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

lab::Roofs known_roofs(const std::string& machine_id) {
  const auto cached = machine::read_ceilings(machine::ceilings_path());
  return cached && cached->machine_id == machine_id ? roofs_of(*cached) : lab::Roofs{};
}

}  // namespace fathom::cli
