#include "machine/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "core/expect.h"
#include "machine/ceilings_measure.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

Effort full_effort() { return {.folder = ceilings_folder()}; }

Ceilings measure_in_full() {
  return measure_ceilings(full_effort(),
                          [](std::string_view line) { fmt::print(stderr, "measuring: {}\n", line); });
}

std::mutex mutex;                 // guards `current`
std::optional<Ceilings> current;  // of this machine

const Bandwidth* find(const Ceilings& known, Level level, Traffic kind, int threads) {
  for (const Bandwidth& entry : known.bandwidths)
    if (entry.level == level && entry.traffic == kind && entry.threads == threads) return &entry;
  return nullptr;
}

// The rate of any number of threads, from those of one thread and of all.
double between(double one, double all, int threads, int all_threads) {
  if (threads <= 1) return one;
  const double highest = std::max(one, all);
  return threads >= all_threads ? highest : std::min(one * threads, highest);
}

double rate(Level level, Traffic kind, int threads, const Ceilings& known, double Measured::*which) {
  const Bandwidth *one = find(known, level, kind, 1), *all = find(known, level, kind, known.threads);
  if (!one || !all) return 0;
  return between(one->bytes_per_s.*which, all->bytes_per_s.*which, threads, known.threads);
}

double flops(DType dtype, int threads, const Ceilings& known, double Measured::*which) {
  double one = 0, all = 0;
  for (const ArithmeticPeak& peak : known.peaks) {
    if (peak.dtype != dtype) continue;
    if (peak.threads == 1) one = std::max(one, peak.flops_per_s.*which);
    if (peak.threads == known.threads) all = std::max(all, peak.flops_per_s.*which);
  }
  return between(one, all, threads, known.threads);
}

int64_t capacity(Level level, int threads, const Topology& machine) {
  const CpuCache* cache = data_cache(machine, static_cast<int>(level) + 1);
  return cache ? cache->bytes * std::min(cache->instances, std::max(1, threads)) : 0;
}

double load_latency(Level level, const Ceilings& known, double Measured::*which) {
  for (const LoadLatency& entry : known.load_latencies)
    if (entry.level == level) return entry.ns.*which;
  return 0;
}

// Where the cache cannot be written, every process measures again.
void cache(const Ceilings& known, const std::string& path) {
  try {
    write_ceilings(known, path);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "warning: ceilings are not cached, point XDG_CACHE_HOME at a writable folder: {}\n",
               problem.what());
  }
}

void keep(const Ceilings& better) {
  current = better;
  cache(better, ceilings_path());
}

}  // namespace

std::string_view to_string(Level level) {
  constexpr std::string_view kNames[] = {"L1", "L2", "L3", "DRAM"};
  return kNames[static_cast<int>(level)];
}

std::string_view to_string(Traffic traffic) {
  constexpr std::string_view kNames[] = {"read", "write", "write_nontemporal", "copy", "copy_nontemporal"};
  return kNames[static_cast<int>(traffic)];
}

std::string_view to_string(DiskRead kind) {
  constexpr std::string_view kNames[] = {"direct", "buffered", "cached_pages"};
  return kNames[static_cast<int>(kind)];
}

double best_rate(Level level, Traffic kind, int threads, const Ceilings& known) {
  return rate(level, kind, threads, known, &Measured::best);
}

double median_rate(Level level, Traffic kind, int threads, const Ceilings& known) {
  return rate(level, kind, threads, known, &Measured::median);
}

double peak_flops(DType dtype, int threads, const Ceilings& known) {
  return flops(dtype, threads, known, &Measured::best);
}

double median_flops(DType dtype, int threads, const Ceilings& known) {
  return flops(dtype, threads, known, &Measured::median);
}

double best_load_latency_ns(Level level, const Ceilings& known) {
  return load_latency(level, known, &Measured::best);
}

double median_load_latency_ns(Level level, const Ceilings& known) {
  return load_latency(level, known, &Measured::median);
}

double best_disk_rate(DiskRead kind, const Ceilings& known) {
  for (const DiskRate& entry : known.disk_reads)
    if (entry.kind == kind) return entry.bytes_per_s.best;
  return 0;
}

Level level_holding(int64_t bytes, int threads, const Topology& machine) {
  for (const Level level : {Level::l1, Level::l2, Level::l3})
    if (bytes <= capacity(level, threads, machine)) return level;
  return Level::dram;
}

double highest_rate(int64_t working_set_bytes, Traffic kind, int threads, const Ceilings& known,
                    const Topology& machine) {
  // An empty set counts as in the nearest level.
  double left = std::max<double>(1, static_cast<double>(working_set_bytes)), seconds = 0;
  const double all = left;
  for (const Level level : kLevels) {
    const double room = level == Level::dram ? left : static_cast<double>(capacity(level, threads, machine));
    const double here = std::min(left, room), rate = best_rate(level, kind, threads, known);
    if (here <= 0 || rate <= 0) continue;
    seconds += here / rate;
    left -= here;
  }
  return seconds > 0 ? all / seconds : 0;
}

const Ceilings& ceilings(Refresh refresh) {
  const std::lock_guard lock(mutex);
  if (!current || refresh == Refresh::always)
    current = obtain_ceilings(refresh, ceilings_path(), measure_in_full);
  return *current;
}

double reprobe(Level level, Traffic kind, int threads) {
  Ceilings known             = ceilings();
  const int measured_threads = threads <= 1 ? 1 : known.threads;
  const Bandwidth again      = measure_bandwidth(level, kind, measured_threads, full_effort());
  for (Bandwidth& entry : known.bandwidths)
    if (entry.level == level && entry.traffic == kind && entry.threads == measured_threads)
      entry.bytes_per_s.best = std::max(entry.bytes_per_s.best, again.bytes_per_s.best);
  const std::lock_guard lock(mutex);
  keep(known);
  return best_rate(level, kind, threads, known);
}

double reprobe_flops(DType dtype, int threads) {
  Ceilings known             = ceilings();
  const int measured_threads = threads <= 1 ? 1 : known.threads;
  const ArithmeticPeak again = measure_peak(dtype, measured_threads, full_effort());
  for (ArithmeticPeak& entry : known.peaks)
    if (entry.isa == again.isa && entry.dtype == dtype && entry.threads == measured_threads)
      entry.flops_per_s.best = std::max(entry.flops_per_s.best, again.flops_per_s.best);
  const std::lock_guard lock(mutex);
  keep(known);
  return peak_flops(dtype, threads, known);
}

std::string ceilings_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    return fs::path(folder) / "fathom" / "ceilings";
  if (const char* home = std::getenv("HOME"); home && *home)
    return fs::path(home) / ".cache" / "fathom" / "ceilings";
  throw SystemError("nowhere to keep measured ceilings: set XDG_CACHE_HOME or HOME");
}

std::string ceilings_path() {
  const std::string identity = machine_identity(topology(), isolation(), kCeilingsVersion);
  return fs::path(ceilings_folder()) / fmt::format("{}-{}.json", machine_id(), identity);
}

Ceilings obtain_ceilings(Refresh refresh, const std::string& path, Ceilings (*measure)()) {
  std::optional<Ceilings> cached;
  if (fs::exists(path)) {
    Result<Ceilings> read  = read_ceilings(path);
    const std::string ours = machine_identity(topology(), isolation(), kCeilingsVersion);
    if (!read)
      fmt::print(stderr, "warning: {}; measuring anew\n", read.error().message);
    else if (read->identity != ours)
      fmt::print(stderr, "warning: {} is of another machine or version; measuring anew\n", path);
    else
      cached = std::move(read).value();
  }
  if (cached && refresh != Refresh::always) return *cached;
  if (refresh == Refresh::never)
    throw SystemError(
        fmt::format("no measured ceilings of this machine in {}: run `fathom doctor` first", path));
  Ceilings fresh = measure();
  if (cached) fresh = with_bests_of(std::move(fresh), *cached);
  cache(fresh, path);
  return fresh;
}

Ceilings with_bests_of(Ceilings fresh, const Ceilings& earlier) {
  const auto higher = [](Measured& into, const Measured& from) {
    into.best = std::max(into.best, from.best);
  };
  const auto lower = [](Measured& into, const Measured& from) {
    if (from.trials > 0) into.best = into.trials > 0 ? std::min(into.best, from.best) : from.best;
  };
  for (Bandwidth& entry : fresh.bandwidths)
    if (const Bandwidth* was = find(earlier, entry.level, entry.traffic, entry.threads))
      higher(entry.bytes_per_s, was->bytes_per_s);
  for (ArithmeticPeak& entry : fresh.peaks)
    for (const ArithmeticPeak& was : earlier.peaks)
      if (was.isa == entry.isa && was.dtype == entry.dtype && was.threads == entry.threads)
        higher(entry.flops_per_s, was.flops_per_s);
  for (LoadLatency& entry : fresh.load_latencies)
    for (const LoadLatency& was : earlier.load_latencies)
      if (was.level == entry.level) lower(entry.ns, was.ns);
  for (DiskRate& entry : fresh.disk_reads)
    for (const DiskRate& was : earlier.disk_reads)
      if (was.kind == entry.kind) higher(entry.bytes_per_s, was.bytes_per_s);
  lower(fresh.wake_up_busy_ns, earlier.wake_up_busy_ns);
  lower(fresh.wake_up_asleep_ns, earlier.wake_up_asleep_ns);
  return fresh;
}

}  // namespace fathom::machine
