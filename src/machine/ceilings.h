// Measured ceilings of the CPU: the highest rates of this machine by cache level, traffic, instruction set
// and threads.
//
// Each has two numbers: the median of the latest measurement, with its interval, which a good program can
// reach today; and the best value of all measurements, which no correct time can beat.
//
// They are cached in $XDG_CACHE_HOME/fathom/ceilings/<machine id>-<identity>.json (~/.cache where it is
// unset). A machine whose processor or memory changed has another identity and is measured anew.
// docs/records.md documents the fields.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "machine/stream_kernels.h"
#include "machine/topology.h"

namespace fathom::machine {

// Increase it when the meaning of a number changes: caches of another version are not used.
inline constexpr int kCeilingsVersion = 1;

enum class Level { l1, l2, l3, dram };
inline constexpr Level kLevels[] = {Level::l1, Level::l2, Level::l3, Level::dram};
std::string_view to_string(Level level);      // "L1", "DRAM"
std::string_view to_string(Traffic traffic);  // "read", "copy_nontemporal"

// One quantity over the trials of the latest measurement; the unit is in the field's name.
struct Measured {
  double median = 0, lo = 0, hi = 0;           // 95 % interval of the median
  double best                            = 0;  // of all measurements: the highest rate, the lowest time
  int trials                             = 0;
  bool operator==(const Measured&) const = default;
};

struct Bandwidth {
  Level level     = Level::dram;
  Traffic traffic = Traffic::read;
  int threads     = 1;
  int64_t bytes   = 0;   // working set of all threads together, source and target
  std::string kernel;    // the fastest of those tried, "AVX2, 4 ranges"
  Measured bytes_per_s;  // a copy counts what it reads and what it writes
  bool operator==(const Bandwidth&) const = default;
};

struct LoadLatency {
  Level level   = Level::dram;
  int64_t bytes = 0;  // of the pointer chain, one pointer in each cache line
  Measured ns;        // of one dependent load
  bool operator==(const LoadLatency&) const = default;
};

struct ArithmeticPeak {
  std::string isa;  // "avx2+fma"
  DType dtype = DType::fp32;
  int threads = 1;
  Measured flops_per_s;  // a multiply-add counts as two; for int8, operations
  bool operator==(const ArithmeticPeak&) const = default;
};

enum class DiskRead {
  direct,        // O_DIRECT, 1 MiB a read, four in flight
  buffered,      // through the page cache, from which the file was dropped: read-ahead applies
  cached_pages,  // from the page cache
};
inline constexpr DiskRead kDiskReads[] = {DiskRead::direct, DiskRead::buffered, DiskRead::cached_pages};
std::string_view to_string(DiskRead kind);

struct DiskRate {
  DiskRead kind = DiskRead::buffered;
  int64_t bytes = 0;                   // of the file
  std::optional<std::string> why_not;  // set: not measured
  Measured bytes_per_s;
  bool operator==(const DiskRate&) const = default;
};

struct Ceilings {
  int version = kCeilingsVersion;
  std::string machine_id, identity;
  std::string measured_at;  // ISO 8601, UTC
  double seconds  = 0;      // duration of the measurement
  int threads     = 1;      // what "all threads" means
  bool huge_pages = false;  // of the buffers; without them, TLB misses limit DRAM and latency
  std::vector<Bandwidth> bandwidths;
  std::vector<LoadLatency> load_latencies;
  std::vector<ArithmeticPeak> peaks;
  Measured wake_up_busy_ns;    // an empty section of the thread pool right after another
  Measured wake_up_asleep_ns;  // the same when the workers are asleep
  std::vector<DiskRate> disk_reads;
  // Half the width of the 95 % interval over 40 pairs of identical 1 ms epochs: a quick run cannot detect a
  // smaller difference. As a share, 0.01 = 1 %.
  double noise_floor_compute = 0, noise_floor_memory = 0;
  double steal_share = 0;              // of CPU time while measuring
  std::optional<double> cpu_pressure;  // share of that time in which some task waited for a CPU
  bool operator==(const Ceilings&) const = default;
};

enum class Refresh { if_missing, always, never };

// This machine's, from the cache or measured now (up to 25 s, with progress on stderr). `never` throws
// SystemError where nothing is cached. The reference stays valid; only a later `always` or a reprobe changes
// the value, and neither may run concurrently with a reader.
const Ceilings& ceilings(Refresh refresh = Refresh::if_missing);

// The best rate, bytes/s. Between 1 and all threads: that many times the single-thread rate, at most the rate
// of all threads. 0 where this machine lacks the level or the instruction.
double best_rate(Level level, Traffic kind, int threads, const Ceilings& known = ceilings());
// The same of the median.
double median_rate(Level level, Traffic kind, int threads, const Ceilings& known = ceilings());

// The best arithmetic rate of all instruction sets. 0: none was measured for this type.
double peak_flops(DType dtype, int threads, const Ceilings& known = ceilings());
double median_flops(DType dtype, int threads, const Ceilings& known = ceilings());

// Best and median, nanoseconds; 0 where there is no such level.
double best_load_latency_ns(Level level, const Ceilings& known = ceilings());
double median_load_latency_ns(Level level, const Ceilings& known = ceilings());

double best_disk_rate(DiskRead kind, const Ceilings& known = ceilings());  // bytes/s; 0: not measured

// The fastest level that holds a working set spread evenly over `threads` cores.
Level level_holding(int64_t bytes, int threads, const Topology& machine = topology());

// An upper bound of the rate over a working set of this size, bytes/s: each byte at the best rate of the
// fastest level with room left for it. Near a level's capacity this is safer than one level's rate, since a
// set slightly too large for a cache still hits in it.
double highest_rate(int64_t working_set_bytes, Traffic kind, int threads, const Ceilings& known = ceilings(),
                    const Topology& machine = topology());

// Measures one ceiling again (some 0.2 s) and keeps a better best, also in the cache. Called when a time is
// below the floor: the ceiling may be too low.
double reprobe(Level level, Traffic kind, int threads);
double reprobe_flops(DType dtype, int threads);

nlohmann::json to_json(const Ceilings& ceilings);
Result<Ceilings> ceilings_from_json(const nlohmann::json& json);

std::string ceilings_folder();  // of the CPU's and the GPUs' cache files
std::string ceilings_path();    // of this machine's cache file
Result<Ceilings> read_ceilings(const std::string& path);
void write_ceilings(const Ceilings& ceilings, const std::string& path);  // whole or not at all

// From the cache at `path`, or measured as `refresh` says and written there, keeping earlier bests. A cache
// that is corrupt or of another machine is measured anew, with a line on stderr.
Ceilings obtain_ceilings(Refresh refresh, const std::string& path, Ceilings (*measure)());

// `fresh`, with the better of both bests for each entry.
Ceilings with_bests_of(Ceilings fresh, const Ceilings& earlier);

}  // namespace fathom::machine
