// Measured ceilings of a GPU, the counterpart of machine/ceilings.h: its highest rates, with clock, power and
// temperature while they were measured. Cached beside the CPU's, under the GPU's UUID and driver.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "cuda/device_id.h"
#include "machine/ceilings.h"
#include "machine/nvml.h"

namespace fathom::machine {

// Increase it when the meaning of a number changes: caches of another version are not used.
inline constexpr int kGpuCeilingsVersion = 1;

enum class GpuLevel { shared, l1, l2, dram };
inline constexpr GpuLevel kGpuLevels[] = {GpuLevel::shared, GpuLevel::l1, GpuLevel::l2, GpuLevel::dram};
std::string_view to_string(GpuLevel level);  // "shared memory", "DRAM"

// The unit, and for tensor cores the code, that does the arithmetic.
enum class GpuUnit {
  cuda_cores,    // chains of multiply-adds
  tensor_cores,  // a loop of mma over one tile
  cublaslt,      // tensor cores, by cuBLASLt for 8192 x 8192 x 8192
};
inline constexpr GpuUnit kGpuUnits[] = {GpuUnit::cuda_cores, GpuUnit::tensor_cores, GpuUnit::cublaslt};
std::string_view to_string(GpuUnit unit);

enum class LinkDirection { to_gpu, to_host };
inline constexpr LinkDirection kLinkDirections[] = {LinkDirection::to_gpu, LinkDirection::to_host};
std::string_view to_string(LinkDirection direction);

struct GpuBandwidth {
  GpuLevel level  = GpuLevel::dram;
  Traffic traffic = Traffic::read;
  int64_t bytes   = 0;   // working set; for shared memory and L1, of one block
  Measured bytes_per_s;  // of all multiprocessors; a copy counts reads and writes
  GpuSensors during;
  bool operator==(const GpuBandwidth&) const = default;
};

struct GpuPeak {
  DType dtype  = DType::fp32;  // of the inputs; fp32 on tensor cores is tf32
  GpuUnit unit = GpuUnit::cuda_cores;
  Measured flops_per_s;  // of random data; `best` also of zeros, which draw less power
  GpuSensors during;
  bool operator==(const GpuPeak&) const = default;
};

std::string_view name_of(const GpuPeak& peak);  // "bf16"; "tf32" for fp32 on tensor cores

struct GpuLatency {
  GpuLevel level = GpuLevel::dram;
  int64_t bytes  = 0;  // of the pointer chain, one pointer in each line of 128 bytes
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

struct PeerCopy {
  int64_t bytes = 0;
  Measured ns;  // from one copy's start to the next one's, of copies in a row
  bool operator==(const PeerCopy&) const = default;
};

struct PeerRate {
  int from = 0, to = 0;  // ordinals
  bool direct = false;   // GPU to GPU; otherwise through the host
  Measured bytes_per_s;
  Measured both_bytes_per_s    = {};  // with copies the other way at the same time, of both; where from < to
  std::vector<PeerCopy> copies = {};  // by size
  bool operator==(const PeerRate&) const = default;
};

struct NotMeasured {
  std::string what, why;
  bool operator==(const NotMeasured&) const = default;
};

struct GpuCeilings {
  int version = kGpuCeilingsVersion;
  std::string machine_id;          // gpu_machine_id()
  std::string name, uuid, driver;  // of the GPU
  std::string measured_at;         // ISO 8601, UTC
  double seconds      = 0;         // duration of the measurement
  int64_t l2_bytes    = 0;
  bool clock_settled  = false;  // the clock was steady within 1 % before measuring, after at most 3 s
  int other_processes = 0;      // with a context on this GPU when measuring began
  std::vector<GpuBandwidth> bandwidths;
  std::vector<GpuPeak> peaks;
  std::vector<GpuLatency> load_latencies;
  Measured launch_ns;            // host time of a launch, of empty kernels in a row
  Measured launch_to_finish_ns;  // from a launch on an idle GPU until the host sees its end
  Measured graph_node_ns;        // an empty kernel in a graph of a thousand in sequence
  std::vector<LinkRate> links;
  std::vector<PeerRate> peers;
  std::vector<NotMeasured> not_measured;
  bool operator==(const GpuCeilings&) const = default;
};

// Of one GPU, from the cache or measured now (up to 25 s, with progress on stderr; measuring makes a CUDA
// context). `never` throws SystemError where nothing is cached, and all do where there is no GPU. The
// reference stays valid and changes only by a later `always` or a reprobe of that GPU.
const GpuCeilings& gpu_ceilings(Refresh refresh = Refresh::if_missing, DeviceId device = {});

// An upper bound of the rate over a working set of this size, bytes/s: the bytes that fit in L2 at its best
// rate, the others at DRAM's. Non-temporal kinds count as the plain ones; 0 where nothing was measured.
double gpu_best_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known = gpu_ceilings());
double gpu_median_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known = gpu_ceilings());
// Of one level. 0: not measured.
double gpu_best_rate(GpuLevel level, Traffic kind, const GpuCeilings& known = gpu_ceilings());
double gpu_median_rate(GpuLevel level, Traffic kind, const GpuCeilings& known = gpu_ceilings());

// The best arithmetic rate of the CUDA cores, or of the tensor cores by any code. 0: none was measured.
double gpu_peak_flops(DType dtype, bool tensor, const GpuCeilings& known = gpu_ceilings());
double gpu_median_flops(DType dtype, bool tensor, const GpuCeilings& known = gpu_ceilings());

// Best and median, nanoseconds. 0: not measured.
double gpu_best_load_latency_ns(GpuLevel level, const GpuCeilings& known = gpu_ceilings());
double gpu_median_load_latency_ns(GpuLevel level, const GpuCeilings& known = gpu_ceilings());

double gpu_best_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known = gpu_ceilings());
double gpu_median_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known = gpu_ceilings());

// Measures one ceiling again (some 0.5 s) and keeps a better best, also in the cache, as reprobe() does.
double gpu_reprobe(GpuLevel level, Traffic kind, DeviceId device = {});
double gpu_reprobe_flops(DType dtype, bool tensor, DeviceId device = {});

nlohmann::json to_json(const GpuCeilings& ceilings);
nlohmann::json to_json(const GpuSensors& sensors);
Result<GpuCeilings> gpu_ceilings_from_json(const nlohmann::json& json);

// Identifies the GPU of a cache: the file name is made from it, and its contents must agree with it.
struct GpuIdentity {
  std::string machine_id, uuid, driver;
};
std::string gpu_ceilings_path(const GpuIdentity& gpu);
Result<GpuCeilings> read_gpu_ceilings(const std::string& path);
void write_gpu_ceilings(const GpuCeilings& ceilings, const std::string& path);  // whole or not at all

// From the cache at `path`, or measured as `refresh` says and written there, keeping earlier bests. A cache
// that is corrupt or of another GPU or driver is measured anew, with a line on stderr.
GpuCeilings obtain_gpu_ceilings(Refresh refresh, const GpuIdentity& gpu, const std::string& path,
                                const std::function<GpuCeilings()>& measure);

// `fresh`, with the better of both bests for each entry.
GpuCeilings with_bests_of(GpuCeilings fresh, const GpuCeilings& earlier);

}  // namespace fathom::machine
