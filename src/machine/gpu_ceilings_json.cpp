#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "machine/gpu_ceilings.h"
#include "machine/measured_json.h"

namespace fathom::machine {
namespace {

using Json = nlohmann::json;

constexpr const char* kGpuSchema = "fathom.gpu_ceilings/1";

GpuSensors sensors_from_json(const Json& json) {
  return {.sm_clock_hz         = optional_from_json<double>(json.at("sm_clock_hz")),
          .memory_clock_hz     = optional_from_json<double>(json.at("memory_clock_hz")),
          .power_w             = optional_from_json<double>(json.at("power_w")),
          .temperature_c       = optional_from_json<double>(json.at("temperature_c")),
          .energy_j            = optional_from_json<double>(json.at("energy_j")),
          .clock_event_reasons = optional_from_json<uint64_t>(json.at("clock_event_reasons"))};
}

GpuCeilings parse_gpu(const Json& json) {
  if (json.at("schema") != kGpuSchema)
    throw std::range_error(fmt::format("its schema is not {}", kGpuSchema));
  GpuCeilings c{.version             = json.at("version"),
                .machine_id          = json.at("machine_id"),
                .name                = json.at("name"),
                .uuid                = json.at("uuid"),
                .driver              = json.at("driver"),
                .measured_at         = json.at("measured_at"),
                .seconds             = json.at("seconds"),
                .l2_bytes            = json.at("l2_bytes"),
                .clock_settled       = json.at("clock_settled"),
                .other_processes     = json.at("other_processes"),
                .launch_ns           = measured_from_json(json.at("launch_ns")),
                .launch_to_finish_ns = measured_from_json(json.at("launch_to_finish_ns")),
                .graph_node_ns       = measured_from_json(json.at("graph_node_ns"))};
  for (const Json& entry : json.at("bandwidths"))
    c.bandwidths.push_back({.level       = enum_from_json(entry.at("level"), kGpuLevels),
                            .traffic     = enum_from_json(entry.at("traffic"), kAllTraffic),
                            .bytes       = entry.at("bytes"),
                            .bytes_per_s = measured_from_json(entry.at("bytes_per_s")),
                            .during      = sensors_from_json(entry.at("during"))});
  for (const Json& entry : json.at("peaks"))
    c.peaks.push_back({.dtype       = dtype_from_json(entry.at("dtype")),
                       .unit        = enum_from_json(entry.at("unit"), kGpuUnits),
                       .flops_per_s = measured_from_json(entry.at("flops_per_s")),
                       .during      = sensors_from_json(entry.at("during"))});
  for (const Json& entry : json.at("load_latencies"))
    c.load_latencies.push_back({.level = enum_from_json(entry.at("level"), kGpuLevels),
                                .bytes = entry.at("bytes"),
                                .ns    = measured_from_json(entry.at("ns"))});
  for (const Json& entry : json.at("links"))
    c.links.push_back({.direction   = enum_from_json(entry.at("direction"), kLinkDirections),
                       .pinned      = entry.at("pinned"),
                       .bytes       = entry.at("bytes"),
                       .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))});
  for (const Json& entry : json.at("peers")) {
    PeerRate peer{.from        = entry.at("from"),
                  .to          = entry.at("to"),
                  .direct      = entry.at("direct"),
                  .bytes_per_s = measured_from_json(entry.at("bytes_per_s"))};
    // Caches of earlier programs have neither.
    peer.both_bytes_per_s = measured_from_json(entry.value("both_bytes_per_s", Json()));
    for (const Json& copy : entry.value("copies", Json::array()))
      peer.copies.push_back({.bytes = copy.at("bytes"), .ns = measured_from_json(copy.at("ns"))});
    c.peers.push_back(std::move(peer));
  }
  for (const Json& entry : json.at("not_measured"))
    c.not_measured.push_back({.what = entry.at("what"), .why = entry.at("why")});
  return c;
}

}  // namespace

nlohmann::json to_json(const GpuSensors& s) {
  return {{"sm_clock_hz", or_null(s.sm_clock_hz)}, {"memory_clock_hz", or_null(s.memory_clock_hz)},
          {"power_w", or_null(s.power_w)},         {"temperature_c", or_null(s.temperature_c)},
          {"energy_j", or_null(s.energy_j)},       {"clock_event_reasons", or_null(s.clock_event_reasons)}};
}

nlohmann::json to_json(const GpuCeilings& c) {
  Json json = {{"schema", kGpuSchema},
               {"version", c.version},
               {"machine_id", c.machine_id},
               {"name", c.name},
               {"uuid", c.uuid},
               {"driver", c.driver},
               {"measured_at", c.measured_at},
               {"seconds", c.seconds},
               {"l2_bytes", c.l2_bytes},
               {"clock_settled", c.clock_settled},
               {"other_processes", c.other_processes},
               {"bandwidths", Json::array()},
               {"peaks", Json::array()},
               {"load_latencies", Json::array()},
               {"launch_ns", measured_to_json(c.launch_ns)},
               {"launch_to_finish_ns", measured_to_json(c.launch_to_finish_ns)},
               {"graph_node_ns", measured_to_json(c.graph_node_ns)},
               {"links", Json::array()},
               {"peers", Json::array()},
               {"not_measured", Json::array()}};
  for (const GpuBandwidth& entry : c.bandwidths)
    json["bandwidths"].push_back({{"level", to_string(entry.level)},
                                  {"traffic", to_string(entry.traffic)},
                                  {"bytes", entry.bytes},
                                  {"bytes_per_s", measured_to_json(entry.bytes_per_s)},
                                  {"during", to_json(entry.during)}});
  for (const GpuPeak& entry : c.peaks)
    json["peaks"].push_back({{"dtype", traits(entry.dtype).name},
                             {"unit", to_string(entry.unit)},
                             {"flops_per_s", measured_to_json(entry.flops_per_s)},
                             {"during", to_json(entry.during)}});
  for (const GpuLatency& entry : c.load_latencies)
    json["load_latencies"].push_back(
        {{"level", to_string(entry.level)}, {"bytes", entry.bytes}, {"ns", measured_to_json(entry.ns)}});
  for (const LinkRate& entry : c.links)
    json["links"].push_back({{"direction", to_string(entry.direction)},
                             {"pinned", entry.pinned},
                             {"bytes", entry.bytes},
                             {"bytes_per_s", measured_to_json(entry.bytes_per_s)}});
  for (const PeerRate& entry : c.peers) {
    Json copies = Json::array();
    for (const PeerCopy& copy : entry.copies)
      copies.push_back({{"bytes", copy.bytes}, {"ns", measured_to_json(copy.ns)}});
    json["peers"].push_back({{"from", entry.from},
                             {"to", entry.to},
                             {"direct", entry.direct},
                             {"bytes_per_s", measured_to_json(entry.bytes_per_s)},
                             {"both_bytes_per_s", measured_to_json(entry.both_bytes_per_s)},
                             {"copies", copies}});
  }
  for (const NotMeasured& entry : c.not_measured)
    json["not_measured"].push_back({{"what", entry.what}, {"why", entry.why}});
  return json;
}

Result<GpuCeilings> gpu_ceilings_from_json(const nlohmann::json& json) {
  try {
    return parse_gpu(json);
  } catch (const std::exception& problem) {
    return Error{fmt::format("not the JSON of a GPU's measured ceilings: {}", problem.what())};
  }
}

Result<GpuCeilings> read_gpu_ceilings(const std::string& path) {
  const Result<Json> json = read_json_file(path);
  if (!json) return json.error();
  Result<GpuCeilings> ceilings = gpu_ceilings_from_json(*json);
  if (!ceilings) return Error{fmt::format("{} is corrupt: {}", path, ceilings.error().message)};
  return ceilings;
}

void write_gpu_ceilings(const GpuCeilings& ceilings, const std::string& path) {
  write_json_file(to_json(ceilings), path);
}

}  // namespace fathom::machine
