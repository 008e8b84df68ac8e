#include "machine/gpu_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>

#include "core/expect.h"
#include "machine/gpu.h"
#include "machine/gpu_ceilings_measure.h"
#include "machine/machine_id.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

GpuIdentity identity_of(DeviceId device) {
  const GpuFacts* facts = gpu(device);
  if (!facts) throw SystemError(fmt::format("no GPU to have ceilings: {}", why_no_gpu(device)));
  return {.machine_id = gpu_machine_id(device),
          .uuid       = facts->uuid,
          .driver = facts->driver.empty() ? "CUDA " + cuda_version_text(facts->driver_cuda) : facts->driver};
}

GpuCeilings measure_gpu_in_full(DeviceId device) {
  GpuCeilings measured = measure_gpu_ceilings(
      [](std::string_view line) { fmt::print(stderr, "measuring: {}\n", line); }, device);
  const GpuIdentity identity = identity_of(device);
  measured.machine_id        = identity.machine_id;
  measured.uuid              = identity.uuid;
  measured.driver            = identity.driver;
  return measured;
}

std::mutex gpu_ceilings_mutex;                      // guards the following
std::optional<GpuCeilings> known_of_gpu[kMaxGpus];  // by ordinal

void cache(const GpuCeilings& known, const std::string& path) {
  try {
    write_gpu_ceilings(known, path);
  } catch (const std::exception& problem) {
    fmt::print(stderr,
               "warning: ceilings of the GPU are not cached, point XDG_CACHE_HOME at a writable folder: {}\n",
               problem.what());
  }
}

void keep(const GpuCeilings& better, DeviceId device) {
  const std::lock_guard lock(gpu_ceilings_mutex);
  known_of_gpu[device.ordinal] = better;
  cache(better, gpu_ceilings_path(identity_of(device)));
}

Traffic plain(Traffic kind) {
  return kind == Traffic::write_nontemporal  ? Traffic::write
         : kind == Traffic::copy_nontemporal ? Traffic::copy
                                             : kind;
}

double rate(GpuLevel level, Traffic kind, const GpuCeilings& known, double Measured::*which) {
  for (const GpuBandwidth& entry : known.bandwidths)
    if (entry.level == level && entry.traffic == plain(kind)) return entry.bytes_per_s.*which;
  return 0;
}

double rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known, double Measured::*which) {
  const double l2 = rate(GpuLevel::l2, kind, known, which), dram = rate(GpuLevel::dram, kind, known, which);
  if (l2 <= 0 || dram <= 0) return std::max(l2, dram);
  const double all  = std::max<double>(1, static_cast<double>(working_set_bytes));
  const double near = std::min(all, static_cast<double>(known.l2_bytes));
  return all / (near / l2 + (all - near) / dram);
}

bool is_tensor(GpuUnit unit) { return unit != GpuUnit::cuda_cores; }

double flops(DType dtype, bool tensor, const GpuCeilings& known, double Measured::*which) {
  double highest = 0;
  for (const GpuPeak& peak : known.peaks)
    if (peak.dtype == dtype && is_tensor(peak.unit) == tensor)
      highest = std::max(highest, peak.flops_per_s.*which);
  return highest;
}

double load_latency(GpuLevel level, const GpuCeilings& known, double Measured::*which) {
  for (const GpuLatency& entry : known.load_latencies)
    if (entry.level == level) return entry.ns.*which;
  return 0;
}

double link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known, double Measured::*which) {
  for (const LinkRate& entry : known.links)
    if (entry.direction == direction && entry.pinned == pinned) return entry.bytes_per_s.*which;
  return 0;
}

}  // namespace

std::string_view to_string(GpuLevel level) {
  constexpr std::string_view kNames[] = {"shared memory", "L1", "L2", "DRAM"};
  return kNames[static_cast<int>(level)];
}

std::string_view to_string(GpuUnit unit) {
  constexpr std::string_view kNames[] = {"cuda_cores", "tensor_cores", "cublaslt"};
  return kNames[static_cast<int>(unit)];
}

std::string_view to_string(LinkDirection direction) {
  constexpr std::string_view kNames[] = {"to_gpu", "to_host"};
  return kNames[static_cast<int>(direction)];
}

std::string_view name_of(const GpuPeak& peak) {
  if (peak.dtype == DType::fp32 && is_tensor(peak.unit)) return "tf32";
  return traits(peak.dtype).name;
}

const GpuCeilings& gpu_ceilings(Refresh refresh, DeviceId device) {
  const GpuIdentity identity = identity_of(device);
  const std::lock_guard lock(gpu_ceilings_mutex);
  std::optional<GpuCeilings>& known = known_of_gpu[device.ordinal];
  if (!known || refresh == Refresh::always)
    known = obtain_gpu_ceilings(refresh, identity, gpu_ceilings_path(identity),
                                [device] { return measure_gpu_in_full(device); });
  return *known;
}

double gpu_best_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known) {
  return rate(kind, working_set_bytes, known, &Measured::best);
}
double gpu_median_rate(Traffic kind, int64_t working_set_bytes, const GpuCeilings& known) {
  return rate(kind, working_set_bytes, known, &Measured::median);
}
double gpu_best_rate(GpuLevel level, Traffic kind, const GpuCeilings& known) {
  return rate(level, kind, known, &Measured::best);
}
double gpu_median_rate(GpuLevel level, Traffic kind, const GpuCeilings& known) {
  return rate(level, kind, known, &Measured::median);
}

double gpu_peak_flops(DType dtype, bool tensor, const GpuCeilings& known) {
  return flops(dtype, tensor, known, &Measured::best);
}
double gpu_median_flops(DType dtype, bool tensor, const GpuCeilings& known) {
  return flops(dtype, tensor, known, &Measured::median);
}

double gpu_best_load_latency_ns(GpuLevel level, const GpuCeilings& known) {
  return load_latency(level, known, &Measured::best);
}
double gpu_median_load_latency_ns(GpuLevel level, const GpuCeilings& known) {
  return load_latency(level, known, &Measured::median);
}

double gpu_best_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known) {
  return link_rate(direction, pinned, known, &Measured::best);
}
double gpu_median_link_rate(LinkDirection direction, bool pinned, const GpuCeilings& known) {
  return link_rate(direction, pinned, known, &Measured::median);
}

double gpu_reprobe(GpuLevel level, Traffic kind, DeviceId device) {
  GpuCeilings known    = gpu_ceilings(Refresh::if_missing, device);
  const Measured again = measure_gpu_bandwidth(level, plain(kind), device);
  for (GpuBandwidth& entry : known.bandwidths)
    if (entry.level == level && entry.traffic == plain(kind))
      entry.bytes_per_s.best = std::max(entry.bytes_per_s.best, again.best);
  keep(known, device);
  return gpu_best_rate(level, kind, known);
}

double gpu_reprobe_flops(DType dtype, bool tensor, DeviceId device) {
  GpuCeilings known    = gpu_ceilings(Refresh::if_missing, device);
  const Measured again = measure_gpu_flops(dtype, tensor, device);
  const GpuUnit unit   = tensor ? GpuUnit::tensor_cores : GpuUnit::cuda_cores;
  for (GpuPeak& entry : known.peaks)
    if (entry.dtype == dtype && entry.unit == unit)
      entry.flops_per_s.best = std::max(entry.flops_per_s.best, again.best);
  keep(known, device);
  return gpu_peak_flops(dtype, tensor, known);
}

std::string gpu_ceilings_path(const GpuIdentity& gpu) {
  std::string name = fmt::format("{}-{}-{}", gpu.machine_id, gpu.uuid, gpu.driver);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-' && c != '_'; }, '-');
  return fs::path(ceilings_folder()) / (name + ".json");
}

GpuCeilings obtain_gpu_ceilings(Refresh refresh, const GpuIdentity& gpu, const std::string& path,
                                const std::function<GpuCeilings()>& measure) {
  std::optional<GpuCeilings> cached;
  if (fs::exists(path)) {
    Result<GpuCeilings> read = read_gpu_ceilings(path);
    if (!read)
      fmt::print(stderr, "warning: {}; measuring anew\n", read.error().message);
    else if (read->uuid != gpu.uuid || read->driver != gpu.driver || read->version != kGpuCeilingsVersion)
      fmt::print(stderr, "warning: {} is of another GPU, driver or version; measuring anew\n", path);
    else
      cached = std::move(read).value();
  }
  if (cached && refresh != Refresh::always) return *cached;
  if (refresh == Refresh::never)
    throw SystemError(fmt::format("no measured ceilings of this GPU in {}: run `fathom doctor` first", path));
  GpuCeilings fresh = measure();
  if (cached) fresh = with_bests_of(std::move(fresh), *cached);
  cache(fresh, path);
  return fresh;
}

GpuCeilings with_bests_of(GpuCeilings fresh, const GpuCeilings& earlier) {
  const auto higher = [](Measured& into, const Measured& from) {
    into.best = std::max(into.best, from.best);
  };
  const auto lower = [](Measured& into, const Measured& from) {
    if (from.trials > 0) into.best = into.trials > 0 ? std::min(into.best, from.best) : from.best;
  };
  for (GpuBandwidth& entry : fresh.bandwidths)
    for (const GpuBandwidth& was : earlier.bandwidths)
      if (was.level == entry.level && was.traffic == entry.traffic)
        higher(entry.bytes_per_s, was.bytes_per_s);
  for (GpuPeak& entry : fresh.peaks)
    for (const GpuPeak& was : earlier.peaks)
      if (was.dtype == entry.dtype && was.unit == entry.unit) higher(entry.flops_per_s, was.flops_per_s);
  for (GpuLatency& entry : fresh.load_latencies)
    for (const GpuLatency& was : earlier.load_latencies)
      if (was.level == entry.level) lower(entry.ns, was.ns);
  for (LinkRate& entry : fresh.links)
    for (const LinkRate& was : earlier.links)
      if (was.direction == entry.direction && was.pinned == entry.pinned)
        higher(entry.bytes_per_s, was.bytes_per_s);
  for (PeerRate& entry : fresh.peers)
    for (const PeerRate& was : earlier.peers)
      if (was.from == entry.from && was.to == entry.to) {
        higher(entry.bytes_per_s, was.bytes_per_s);
        higher(entry.both_bytes_per_s, was.both_bytes_per_s);
        for (PeerCopy& copy : entry.copies)
          for (const PeerCopy& copy_was : was.copies)
            if (copy_was.bytes == copy.bytes) lower(copy.ns, copy_was.ns);
      }
  lower(fresh.launch_ns, earlier.launch_ns);
  lower(fresh.launch_to_finish_ns, earlier.launch_to_finish_ns);
  lower(fresh.graph_node_ns, earlier.graph_node_ns);
  return fresh;
}

}  // namespace fathom::machine
