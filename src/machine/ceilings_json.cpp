#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "machine/ceilings.h"
#include "machine/measured_json.h"

namespace fathom::machine {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "fathom.ceilings/1";

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
  c.cpu_pressure = optional_from_json<double>(json.at("cpu_pressure"));
  for (const Json& entry : json.at("bandwidths"))
    c.bandwidths.push_back({.level       = enum_from_json(entry.at("level"), kLevels),
                            .traffic     = enum_from_json(entry.at("traffic"), kAllTraffic),
                            .threads     = entry.at("threads"),
                            .bytes       = entry.at("bytes"),
                            .kernel      = entry.at("kernel"),
                            .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))});
  for (const Json& entry : json.at("load_latencies"))
    c.load_latencies.push_back({.level = enum_from_json(entry.at("level"), kLevels),
                                .bytes = entry.at("bytes"),
                                .ns    = measured_from_json(entry.at("ns"))});
  for (const Json& entry : json.at("peaks"))
    c.peaks.push_back({.isa         = entry.at("isa"),
                       .dtype       = dtype_from_json(entry.at("dtype")),
                       .threads     = entry.at("threads"),
                       .flops_per_s = measured_from_json(entry.at("flops_per_s"))});
  for (const Json& entry : json.at("disk_reads")) {
    DiskRate rate{.kind        = enum_from_json(entry.at("kind"), kDiskReads),
                  .bytes       = entry.at("bytes"),
                  .why_not     = {},
                  .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))};
    rate.why_not = optional_from_json<std::string>(entry.at("why_not"));
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
               {"cpu_pressure", or_null(c.cpu_pressure)}};
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
                                  {"why_not", or_null(entry.why_not)},
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
  const Result<Json> json = read_json_file(path);
  if (!json) return json.error();
  Result<Ceilings> ceilings = ceilings_from_json(*json);
  if (!ceilings) return Error{fmt::format("{} is corrupt: {}", path, ceilings.error().message)};
  return ceilings;
}

void write_ceilings(const Ceilings& ceilings, const std::string& path) {
  write_json_file(to_json(ceilings), path);
}

}  // namespace fathom::machine
