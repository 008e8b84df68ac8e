#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "diagnose/facts.h"

namespace fathom::diagnose {
namespace {

bool mentions(const std::string& text, std::string_view word) { return text.find(word) != text.npos; }

}  // namespace

MachineRates machine_rates(const lab::RunRecord& run, const std::vector<lab::ExperimentRecord>& records,
                           int threads) {
  MachineRates rates;
  const std::string suffix = threads == 1 ? ", 1 thread" : fmt::format(", {} threads", threads);
  const auto take          = [&](const std::vector<lab::ExperimentRecord>& experiments) {
    for (const lab::ExperimentRecord& experiment : experiments)
      for (const lab::PointRecord& point : experiment.points) {
        const std::string& limit = point.limit;
        // Of ranks and of sets in two levels the rate is no ceiling of one unit.
        if (mentions(limit, "ranks") || mentions(limit, " and ")) continue;
        if (experiment.backend != "cuda" && !mentions(limit, suffix)) continue;
        for (const lab::VariantRecord& variant : point.variants) {
          if (!variant.limit_rate) continue;
          if (mentions(limit, "bandwidth of DRAM"))
            rates.dram_bytes_per_s = std::max(rates.dram_bytes_per_s, *variant.limit_rate);
          if (limit.starts_with("fp32 "))
            rates.flops_per_s = std::max(rates.flops_per_s, *variant.limit_rate);
        }
      }
  };
  take(run.experiments);
  take(records);
  const auto manifest = nlohmann::json::parse(run.manifest, nullptr, false);
  if (manifest.is_object()) {
    const nlohmann::json gpu =
        manifest.value("machine", nlohmann::json::object()).value("gpu", nlohmann::json::object());
    if (gpu.is_object()) {
      rates.multiprocessors    = gpu.value("multiprocessors", 0);
      rates.compute_capability = gpu.value("capability", 0);
    }
  }
  return rates;
}

}  // namespace fathom::diagnose
