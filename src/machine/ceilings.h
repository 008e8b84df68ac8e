// Measured ceilings: the most this machine has been seen to do, by cache level, traffic, instruction set and
// threads.
//
// Two numbers of each: the median of the last measuring, with its interval, which is what a good program can
// have today; and the best ever seen, kept across measurings, which is what no honest time may undercut.
//
// They are cached in $XDG_CACHE_HOME/fathom/ceilings/<machine id>-<identity>.json (~/.cache where it is
// unset), so that another machine, or one whose processor or memory changed, measures anew. docs/records.md
// has the fields.
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

// Raise it when the meaning of a number changes: caches of another version are measured anew.
inline constexpr int kCeilingsVersion = 1;

enum class Level { l1, l2, l3, dram };
inline constexpr Level kLevels[] = {Level::l1, Level::l2, Level::l3, Level::dram};
std::string_view to_string(Level level);      // "L1", "DRAM"
std::string_view to_string(Traffic traffic);  // "read", "copy_nontemporal"

// Of one quantity over the trials of the last measuring; the unit is in the owner's field name.
struct Measured {
  double median = 0, lo = 0, hi = 0;           // 95 % interval of the median
  double best                            = 0;  // ever seen: the highest rate, the lowest time
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
  int64_t bytes = 0;  // of the cycle that is chased, one pointer a cache line
  Measured ns;        // of one load that waits for the one before
  bool operator==(const LoadLatency&) const = default;
};

struct ArithmeticPeak {
  std::string isa;  // "avx2+fma"
  DType dtype = DType::fp32;
  int threads = 1;
  Measured flops_per_s;  // a multiply-add is two; for int8 operations
  bool operator==(const ArithmeticPeak&) const = default;
};

enum class DiskRead {
  direct,        // O_DIRECT, 1 MiB a read, four in flight
  buffered,      // through the page cache after it was told to forget the file: read-ahead does the work
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
  std::string measured_at;  // of the last measuring, ISO 8601, UTC
  double seconds  = 0;      // it took
  int threads     = 1;      // "all"
  bool huge_pages = false;  // the buffers got them; without, address translation limits DRAM and latency
  std::vector<Bandwidth> bandwidths;
  std::vector<LoadLatency> load_latencies;
  std::vector<ArithmeticPeak> peaks;
  Measured wake_up_busy_ns;    // an empty section of the pool right after another
  Measured wake_up_asleep_ns;  // after the workers went to sleep
  std::vector<DiskRate> disk_reads;
  // Half the width of the 95 % interval of identical 1 ms epochs compared in 40 pairs: a smaller difference
  // cannot be seen in a quick run. As a share, 0.01 = 1 %.
  double noise_floor_compute = 0, noise_floor_memory = 0;
  double steal_share = 0;              // of the processors' time while measuring
  std::optional<double> cpu_pressure;  // share of the measuring in which something waited for a processor
  bool operator==(const Ceilings&) const = default;
};

enum class Refresh { if_missing, always, never };

// Of this machine, from the cache or measured now (up to 25 s, with progress on stderr). `never` throws
// SystemError where nothing is cached. The reference stays valid and changes only by a later `always` or a
// reprobe, neither of which may run beside a reader.
const Ceilings& ceilings(Refresh refresh = Refresh::if_missing);

// The highest rate ever seen, bytes/s. Between 1 and all threads: what that many single threads could do, at
// most what all can. 0 where this machine has no such level or no such instruction.
double best_rate(Level level, Traffic kind, int threads, const Ceilings& known = ceilings());
// The same of the median.
double median_rate(Level level, Traffic kind, int threads, const Ceilings& known = ceilings());

// The highest arithmetic rate ever seen over all instruction sets. 0: none was measured for this type.
double peak_flops(DType dtype, int threads, const Ceilings& known = ceilings());
double median_flops(DType dtype, int threads, const Ceilings& known = ceilings());

// Lowest ever seen and median, nanoseconds; 0 where there is no such level.
double best_load_latency_ns(Level level, const Ceilings& known = ceilings());
double median_load_latency_ns(Level level, const Ceilings& known = ceilings());

double best_disk_rate(DiskRead kind, const Ceilings& known = ceilings());  // bytes/s; 0: not measured

// The fastest level that holds a working set spread evenly over that many threads, each on a core of its own.
Level level_holding(int64_t bytes, int threads, const Topology& machine = topology());

// What no traffic over a working set of this size can beat, bytes/s: each byte at the best rate of the
// fastest level that has room left for it. Beside a level's capacity this is safer than one level's rate,
// since a set slightly too large for a cache still hits in it.
double highest_rate(int64_t working_set_bytes, Traffic kind, int threads, const Ceilings& known = ceilings(),
                    const Topology& machine = topology());

// Measures one ceiling again (some 0.2 s) and keeps a better best, also in the cache. For a time that looks
// impossible: was the ceiling too low?
double reprobe(Level level, Traffic kind, int threads);
double reprobe_flops(DType dtype, int threads);

nlohmann::json to_json(const Ceilings& ceilings);
Result<Ceilings> ceilings_from_json(const nlohmann::json& json);

std::string ceilings_folder();  // the CPU's and the GPU's caches lie there
std::string ceilings_path();    // of this machine's cache file
Result<Ceilings> read_ceilings(const std::string& path);
void write_ceilings(const Ceilings& ceilings, const std::string& path);  // whole or not at all

// From the cache at `path` as `refresh` says; what is measured is written there, with the bests of what was.
// A cache that is corrupt or of another machine is measured anew, with a line on stderr.
Ceilings obtain_ceilings(Refresh refresh, const std::string& path, Ceilings (*measure)());

// `fresh` with the better best of both, entry by entry.
Ceilings with_bests_of(Ceilings fresh, const Ceilings& earlier);

}  // namespace fathom::machine
