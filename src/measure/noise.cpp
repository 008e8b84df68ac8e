#include "measure/noise.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string_view>

namespace fathom::measure {
namespace {

// "cpu  user nice system idle iowait irq softirq steal ..." in clock ticks, summed over CPUs.
std::optional<double> steal_s(const std::string& procfs) {
  std::ifstream file(procfs + "/stat");
  std::string label;
  double ticks = 0;
  if (!(file >> label) || label != "cpu") return std::nullopt;
  for (int field = 0; field < 8; ++field)
    if (!(file >> ticks)) return std::nullopt;
  const long ticks_per_s = sysconf(_SC_CLK_TCK);
  if (ticks_per_s <= 0) return std::nullopt;
  return ticks / static_cast<double>(ticks_per_s);
}

// "running waiting slices", the first two in nanoseconds. From thread-self: self would be the process's first
// thread.
std::optional<double> run_delay_s(const std::string& procfs) {
  std::ifstream file(procfs + "/thread-self/schedstat");
  double running_ns = 0, waiting_ns = 0;
  if (!(file >> running_ns >> waiting_ns)) return std::nullopt;
  return waiting_ns * 1e-9;
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" in microseconds. Reading may fail where pressure
// accounting is compiled in but switched off.
std::optional<double> cpu_pressure_s(const std::string& procfs) {
  std::ifstream file(procfs + "/pressure/cpu");
  std::string word;
  if (!(file >> word) || word != "some") return std::nullopt;
  while (file >> word && word != "full") {
    constexpr std::string_view kTotal = "total=";
    if (!word.starts_with(kTotal)) continue;
    std::istringstream digits(word.substr(kTotal.size()));
    double total_us = 0;
    if (digits >> total_us) return total_us * 1e-6;
  }
  return std::nullopt;
}

template <class T>
std::optional<T> minus(const std::optional<T>& after, const std::optional<T>& before) {
  if (!after || !before) return std::nullopt;
  return *after - *before;
}

}  // namespace

Noise read_noise(const std::string& procfs) {
  Noise noise{.steal_s        = steal_s(procfs),
              .cpu_pressure_s = cpu_pressure_s(procfs),
              .run_delay_s    = run_delay_s(procfs)};
  if (rusage usage; getrusage(RUSAGE_THREAD, &usage) == 0) {
    noise.voluntary_switches   = usage.ru_nvcsw;
    noise.involuntary_switches = usage.ru_nivcsw;
    noise.minor_faults         = usage.ru_minflt;
    noise.major_faults         = usage.ru_majflt;
  }
  return noise;
}

Noise growth(const Noise& before, const Noise& after) {
  return {.steal_s              = minus(after.steal_s, before.steal_s),
          .cpu_pressure_s       = minus(after.cpu_pressure_s, before.cpu_pressure_s),
          .run_delay_s          = minus(after.run_delay_s, before.run_delay_s),
          .voluntary_switches   = minus(after.voluntary_switches, before.voluntary_switches),
          .involuntary_switches = minus(after.involuntary_switches, before.involuntary_switches),
          .minor_faults         = minus(after.minor_faults, before.minor_faults),
          .major_faults         = minus(after.major_faults, before.major_faults)};
}

}  // namespace fathom::measure
