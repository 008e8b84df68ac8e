#include "lab/floor_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "machine/ceilings.h"
#include "machine/gpu_ceilings.h"
#include "measure/interval.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

using machine::Traffic;

constexpr double kTolerated = 0.9;  // of the floor

double ns_at(double amount, double per_s) { return amount > 0 && per_s > 0 ? amount / per_s * 1e9 : 0; }

std::optional<double> positive(double floor) { return floor > 0 ? std::optional(floor) : std::nullopt; }

// Each direction has its own best rate: a call may overlap its reads with its writes.
std::optional<double> cpu_floor_ns(const Cost& cost, int64_t working_set, int threads) {
  const auto bytes_ns = [&](int64_t bytes, Traffic plain, Traffic nontemporal) {
    if (bytes <= 0) return 0.0;
    return ns_at(static_cast<double>(bytes),
                 std::max(machine::highest_rate(working_set, plain, threads),
                          machine::highest_rate(working_set, nontemporal, threads)));
  };
  return positive(
      std::max({bytes_ns(cost.read, Traffic::read, Traffic::read),
                bytes_ns(cost.written, Traffic::write, Traffic::write_nontemporal),
                cost.flops > 0 ? ns_at(cost.flops, machine::peak_flops(cost.flop_type, threads)) : 0}));
}

std::optional<double> gpu_floor_ns(const Cost& cost, int64_t working_set) {
  return positive(
      std::max({ns_at(static_cast<double>(cost.read), machine::gpu_best_rate(Traffic::read, working_set)),
                ns_at(static_cast<double>(cost.written), machine::gpu_best_rate(Traffic::write, working_set)),
                ns_at(cost.flops, std::max(machine::gpu_peak_flops(cost.flop_type, true),
                                           machine::gpu_peak_flops(cost.flop_type, false)))}));
}

}  // namespace

int64_t working_set(const ExperimentInfo& experiment, const Problem& problem) {
  const Cost cost    = problem.cost();
  const int64_t held = problem.arena().input_bytes() + problem.arena().output_bytes();
  if (cost.working_set > 0) return cost.working_set;
  return experiment.limit == Limit::memory ? std::min(held, cost.read + cost.written) : held;
}

int64_t rotated_bytes(const ExperimentInfo& experiment, const Problem& problem, int64_t sets) {
  return working_set(experiment, problem) * (experiment.cache == Cache::rotated ? sets : 1);
}

std::optional<double> floor_ns(Backend backend, const Cost& cost, int64_t working_set, int threads) {
  return backend == Backend::cuda ? gpu_floor_ns(cost, working_set)
                                  : cpu_floor_ns(cost, working_set, threads);
}

std::optional<double> floor_measured_again(Backend backend, const Cost& cost, int64_t working_set,
                                           int threads) {
  if (backend == Backend::cuda) return floor_ns(backend, cost, working_set, threads);
  const machine::Level furthest = machine::level_holding(working_set, threads);
  for (const machine::Level level : machine::kLevels) {
    if (level > furthest) break;
    if (cost.read > 0) machine::reprobe(level, Traffic::read, threads);
    if (cost.written > 0)
      for (const Traffic kind : {Traffic::write, Traffic::write_nontemporal})
        machine::reprobe(level, kind, threads);
  }
  if (cost.flops > 0) machine::reprobe_flops(cost.flop_type, threads);
  return floor_ns(backend, cost, working_set, threads);
}

std::optional<Caught> check_floor(double median_ns, std::optional<double> floor_ns,
                                  std::optional<double> fastest_control_ns,
                                  const std::function<std::vector<double>()>& probe_again,
                                  const std::function<std::optional<double>()>& floor_again) {
  if (!floor_ns || median_ns >= kTolerated * *floor_ns) return std::nullopt;
  const std::vector<double> again = probe_again();
  const double probed             = again.empty() ? 0 : measure::median(again);
  double limit                    = std::min(*floor_ns, fastest_control_ns.value_or(*floor_ns));
  if (probed >= kTolerated * limit) return std::nullopt;
  limit = std::min(limit, floor_again().value_or(limit));
  if (probed >= kTolerated * limit) return std::nullopt;
  return Caught{Outcome::invalid, "floor",
                fmt::format("{:.3g} ns a call; the declared work takes at least {:.3g} ns on this machine",
                            probed, limit)};
}

std::optional<Caught> check_peak(const std::vector<double>& shares, const std::string& peak) {
  const auto interval = measure::median_interval(shares, 0.99);
  if (!interval || interval->lo <= kLargestShare) return std::nullopt;
  return Caught{Outcome::invalid, "peak",
                fmt::format("{:.2f} of the {}: its instructions are wider than its .needs says, or its flops "
                            "fewer than it declares",
                            measure::median(shares), peak)};
}

}  // namespace fathom::lab
