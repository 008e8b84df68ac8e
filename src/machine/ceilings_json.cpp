#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "machine/ceilings.h"

namespace fathom::machine {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "fathom.ceilings/1";

Json measured_to_json(const Measured& m) {
  if (m.trials == 0) return nullptr;
  return {{"median", m.median}, {"lo", m.lo}, {"hi", m.hi}, {"best", m.best}, {"trials", m.trials}};
}

// Throws nlohmann's exceptions, and std::range_error for numbers no measuring gives.
Measured measured_from_json(const Json& json) {
  if (json.is_null()) return {};
  const Measured m{json.at("median"), json.at("lo"), json.at("hi"), json.at("best"), json.at("trials")};
  for (const double value : {m.median, m.lo, m.hi, m.best})
    if (!(value > 0) || !std::isfinite(value))
      throw std::range_error(fmt::format("{} is no measured value", value));
  return m;
}

template <class E, size_t N>
E enum_from(const Json& json, const E (&values)[N]) {
  const std::string name = json;
  for (const E value : values)
    if (to_string(value) == name) return value;
  throw std::range_error(fmt::format("\"{}\" is not known", name));
}

constexpr Traffic kAllTraffic[] = {Traffic::read, Traffic::write, Traffic::write_nontemporal, Traffic::copy,
                                   Traffic::copy_nontemporal};
static_assert(std::size(kAllTraffic) == kTraffics);

DType dtype_from(const Json& json) {
  const std::string name = json;
  for (size_t i = 0; i < std::size(kDTypes); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  throw std::range_error(fmt::format("\"{}\" is no dtype", name));
}

Ceilings parse(const Json& json) {
  if (json.at("schema") != kSchema) throw std::range_error(fmt::format("its schema is not {}", kSchema));
  Ceilings c{.version             = json.at("version"),
             .machine_id          = json.at("machine_id"),
             .identity            = json.at("identity"),
             .measured_at         = json.at("measured_at"),
             .seconds             = json.at("seconds"),
             .threads             = json.at("threads"),
             .huge_pages          = json.at("huge_pages"),
             .wake_up_busy_ns     = measured_from_json(json.at("wake_up_busy_ns")),
             .wake_up_asleep_ns   = measured_from_json(json.at("wake_up_asleep_ns")),
             .noise_floor_compute = json.at("noise_floor_compute"),
             .noise_floor_memory  = json.at("noise_floor_memory"),
             .steal_share         = json.at("steal_share"),
             .cpu_pressure        = {}};
  if (!json.at("cpu_pressure").is_null()) c.cpu_pressure = json.at("cpu_pressure").get<double>();
  for (const Json& entry : json.at("bandwidths"))
    c.bandwidths.push_back({.level       = enum_from(entry.at("level"), kLevels),
                            .traffic     = enum_from(entry.at("traffic"), kAllTraffic),
                            .threads     = entry.at("threads"),
                            .bytes       = entry.at("bytes"),
                            .kernel      = entry.at("kernel"),
                            .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))});
  for (const Json& entry : json.at("load_latencies"))
    c.load_latencies.push_back({.level = enum_from(entry.at("level"), kLevels),
                                .bytes = entry.at("bytes"),
                                .ns    = measured_from_json(entry.at("ns"))});
  for (const Json& entry : json.at("peaks"))
    c.peaks.push_back({.isa         = entry.at("isa"),
                       .dtype       = dtype_from(entry.at("dtype")),
                       .threads     = entry.at("threads"),
                       .flops_per_s = measured_from_json(entry.at("flops_per_s"))});
  for (const Json& entry : json.at("disk_reads")) {
    DiskRate rate{.kind        = enum_from(entry.at("kind"), kDiskReads),
                  .bytes       = entry.at("bytes"),
                  .why_not     = {},
                  .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))};
    if (!entry.at("why_not").is_null()) rate.why_not = entry.at("why_not").get<std::string>();
    c.disk_reads.push_back(std::move(rate));
  }
  return c;
}

}  // namespace

nlohmann::json to_json(const Ceilings& c) {
  Json json = {{"schema", kSchema},
               {"version", c.version},
               {"machine_id", c.machine_id},
               {"identity", c.identity},
               {"measured_at", c.measured_at},
               {"seconds", c.seconds},
               {"threads", c.threads},
               {"huge_pages", c.huge_pages},
               {"bandwidths", Json::array()},
               {"load_latencies", Json::array()},
               {"peaks", Json::array()},
               {"disk_reads", Json::array()},
               {"wake_up_busy_ns", measured_to_json(c.wake_up_busy_ns)},
               {"wake_up_asleep_ns", measured_to_json(c.wake_up_asleep_ns)},
               {"noise_floor_compute", c.noise_floor_compute},
               {"noise_floor_memory", c.noise_floor_memory},
               {"steal_share", c.steal_share},
               {"cpu_pressure", c.cpu_pressure ? Json(*c.cpu_pressure) : Json(nullptr)}};
  for (const Bandwidth& entry : c.bandwidths)
    json["bandwidths"].push_back({{"level", to_string(entry.level)},
                                  {"traffic", to_string(entry.traffic)},
                                  {"threads", entry.threads},
                                  {"bytes", entry.bytes},
                                  {"kernel", entry.kernel},
                                  {"bytes_per_s", measured_to_json(entry.bytes_per_s)}});
  for (const LoadLatency& entry : c.load_latencies)
    json["load_latencies"].push_back(
        {{"level", to_string(entry.level)}, {"bytes", entry.bytes}, {"ns", measured_to_json(entry.ns)}});
  for (const ArithmeticPeak& entry : c.peaks)
    json["peaks"].push_back({{"isa", entry.isa},
                             {"dtype", kDTypes[static_cast<size_t>(entry.dtype)].name},
                             {"threads", entry.threads},
                             {"flops_per_s", measured_to_json(entry.flops_per_s)}});
  for (const DiskRate& entry : c.disk_reads)
    json["disk_reads"].push_back({{"kind", to_string(entry.kind)},
                                  {"bytes", entry.bytes},
                                  {"why_not", entry.why_not ? Json(*entry.why_not) : Json(nullptr)},
                                  {"bytes_per_s", measured_to_json(entry.bytes_per_s)}});
  return json;
}

Result<Ceilings> ceilings_from_json(const nlohmann::json& json) {
  try {
    return parse(json);
  } catch (const std::exception& problem) {
    return Error{fmt::format("not the JSON of measured ceilings: {}", problem.what())};
  }
}

Result<Ceilings> read_ceilings(const std::string& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return Error{fmt::format("{} cannot be read: {}", path, std::strerror(errno))};
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{fmt::format("{} is corrupt: not JSON", path)};
  Result<Ceilings> ceilings = ceilings_from_json(json);
  if (!ceilings) return Error{fmt::format("{} is corrupt: {}", path, ceilings.error().message)};
  return ceilings;
}

void write_ceilings(const Ceilings& ceilings, const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const std::string text = to_json(ceilings).dump(1) + "\n";
  std::string temporary  = path + ".XXXXXX";
  const int file         = FATHOM_SYSTEM(mkostemp(temporary.data(), O_CLOEXEC));
  const bool written =
      write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
  const int error = errno;
  close(file);
  if (!written) {
    unlink(temporary.c_str());
    system_failed("write of the ceilings cache", error, __FILE__, __LINE__);
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace fathom::machine
