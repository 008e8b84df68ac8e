// Measured ceilings of the GPU, the twin of machine/ceilings.h: the most this GPU has been seen to do, with
// the clock, power and temperature at which it did. Kept beside the CPU's, under the GPU's UUID and driver.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "machine/ceilings.h"
#include "machine/nvml.h"

namespace fathom::machine {

// Raise it when the meaning of a number changes: caches of another version are measured anew.
inline constexpr int kGpuCeilingsVersion = 1;

enum class GpuLevel { shared, l1, l2, dram };
inline constexpr GpuLevel kGpuLevels[] = {GpuLevel::shared, GpuLevel::l1, GpuLevel::l2, GpuLevel::dram};
std::string_view to_string(GpuLevel level);  // "shared memory", "DRAM"

// Who does the arithmetic.
enum class GpuUnit {
  cuda_cores,    // chains of multiply-adds
  tensor_cores,  // a loop of mma over one tile
  cublaslt,      // tensor cores, as cuBLASLt uses them for 8192 x 8192 x 8192
};
inline constexpr GpuUnit kGpuUnits[] = {GpuUnit::cuda_cores, GpuUnit::tensor_cores, GpuUnit::cublaslt};
std::string_view to_string(GpuUnit unit);

enum class LinkDirection { to_gpu, to_host };
inline constexpr LinkDirection kLinkDirections[] = {LinkDirection::to_gpu, LinkDirection::to_host};
std::string_view to_string(LinkDirection direction);

struct GpuBandwidth {
  GpuLevel level  = GpuLevel::dram;
  Traffic traffic = Traffic::read;
  int64_t bytes   = 0;   // working set; for shared memory and L1 of one block
  Measured bytes_per_s;  // all multiprocessors; a copy counts what it reads and what it writes
  GpuSensors during;
  bool operator==(const GpuBandwidth&) const = default;
};

struct GpuPeak {
  DType dtype  = DType::fp32;  // of the inputs; fp32 on tensor cores is tf32
  GpuUnit unit = GpuUnit::cuda_cores;
  Measured flops_per_s;  // of random data; the best also of zeros, which draw less power
  GpuSensors during;
  bool operator==(const GpuPeak&) const = default;
};

std::string_view name_of(const GpuPeak& peak);  // "bf16"; "tf32" for fp32 on tensor cores

struct GpuLatency {
  GpuLevel level = GpuLevel::dram;
  int64_t bytes  = 0;  // of the cycle that is chased, one pointer a line of 128
  Measured ns;
  bool operator==(const GpuLatency&) const = default;
};

struct LinkRate {
  LinkDirection direction = LinkDirection::to_gpu;
  bool pinned             = true;
  int64_t bytes           = 0;  // of a copy
  Measured bytes_per_s;
  bool operator==(const LinkRate&) const = default;
};

struct PeerRate {
  int from = 0, to = 0;  // CUDA's numbers
  bool direct = false;   // GPU to GPU; else through the host
  Measured bytes_per_s;
  bool operator==(const PeerRate&) const = default;
};

struct NotMeasured {
  std::string what, why;
  bool operator==(const NotMeasured&) const = default;
};

struct GpuCeilings {
  int version = kGpuCeilingsVersion;
  std::string machine_id;          // gpu_machine_id()
  std::string name, uuid, driver;  // whose they are
  std::string measured_at;         // ISO 8601, UTC
  double seconds      = 0;         // it took
  int64_t l2_bytes    = 0;
  bool clock_settled  = false;  // the clock stood still within 1 % before measuring began, in at most 3 s
  int other_processes = 0;      // with a context on this GPU, when measuring began
  std::vector<GpuBandwidth> bandwidths;
  std::vector<GpuPeak> peaks;
  std::vector<GpuLatency> load_latencies;
  Measured launch_ns;            // of the host's time, launching one empty kernel after another
  Measured launch_to_finish_ns;  // from a launch on an idle GPU until the host knows of its end
  Measured graph_node_ns;        // an empty kernel in a graph of a thousand in a row
  std::vector<LinkRate> links;
  std::vector<PeerRate> peers;
  std::vector<NotMeasured> not_measured;
  bool operator==(const GpuCeilings&) const = default;
};

// Of this process's GPU, from the cache or measured now (up to 25 s, with progress on stderr; measuring makes
// a CUDA context). `never` throws SystemError where nothing is cached, and all do where there is no GPU. The
// reference stays valid and changes only by a later `always` or a reprobe.
const GpuCeilings& gpu_ceilings(Refresh refresh = Refresh::if_missing);

// What no traffic over a working set of this size can beat, bytes/s: each byte at the best rate of L2 as far
// as it has room, then of DRAM. Non-temporal kinds are the plain ones; 0 where nothing was measured.
double gpu_best_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known = gpu_ceilings());
double gpu_median_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known = gpu_ceilings());
// Of one level. 0: not measured.
double gpu_best_rate(GpuLevel level, Traffic kind, const GpuCeilings& known = gpu_ceilings());
double gpu_median_rate(GpuLevel level, Traffic kind, const GpuCeilings& known = gpu_ceilings());

// The highest arithmetic rate ever seen of the CUDA cores, or of the tensor cores by whatever loop. 0: none.
double gpu_peak_flops(DType dtype, bool tensor, const GpuCeilings& known = gpu_ceilings());
double gpu_median_flops(DType dtype, bool tensor, const GpuCeilings& known = gpu_ceilings());

// Lowest ever seen and median, nanoseconds. 0: not measured.
double gpu_best_load_latency_ns(GpuLevel level, const GpuCeilings& known = gpu_ceilings());
double gpu_median_load_latency_ns(GpuLevel level, const GpuCeilings& known = gpu_ceilings());

double gpu_best_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known = gpu_ceilings());
double gpu_median_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known = gpu_ceilings());

// Measures one ceiling again (some 0.5 s) and keeps a better best, also in the cache, as reprobe() does.
double gpu_reprobe(GpuLevel level, Traffic kind);
double gpu_reprobe_flops(DType dtype, bool tensor);

nlohmann::json to_json(const GpuCeilings& ceilings);
nlohmann::json to_json(const GpuSensors& sensors);
Result<GpuCeilings> gpu_ceilings_from_json(const nlohmann::json& json);

// Whose ceilings: what the cache's name is made from, and what must agree in it.
struct GpuIdentity {
  std::string machine_id, uuid, driver;
};
std::string gpu_ceilings_path(const GpuIdentity& gpu);
Result<GpuCeilings> read_gpu_ceilings(const std::string& path);
void write_gpu_ceilings(const GpuCeilings& ceilings, const std::string& path);  // whole or not at all

// From the cache at `path` as `refresh` says; what is measured is written there, with the bests of what was.
// A cache that is corrupt or of another GPU or driver is measured anew, with a line on stderr.
GpuCeilings obtain_gpu_ceilings(Refresh refresh, const GpuIdentity& gpu, const std::string& path,
                                GpuCeilings (*measure)());

// `fresh` with the better best of both, entry by entry.
GpuCeilings with_bests_of(GpuCeilings fresh, const GpuCeilings& earlier);

}  // namespace fathom::machine
