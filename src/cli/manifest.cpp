#include "cli/manifest.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/source_hash.h"
#include "machine/gpu.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"
#include "machine/topology.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

// Null without a GPU. The UUID is left out: it identifies one card of one owner.
json gpu_facts(DeviceId device) {
  const machine::GpuFacts* gpu = machine::gpu(device);
  if (!gpu) return nullptr;
  return {{"id", machine::gpu_machine_id(device)},
          {"name", gpu->name},
          {"count", gpu->count},
          {"capability", gpu->capability()},
          {"multiprocessors", gpu->multiprocessors},
          {"l2_bytes", gpu->l2_bytes},
          {"memory_bytes", gpu->memory_bytes},
          {"max_clock_hz", gpu->max_clock_hz},
          {"driver", gpu->driver},
          {"cuda", machine::cuda_version_text(gpu->runtime_cuda)}};
}

json machine_facts(DeviceId device) {
  const machine::Topology& topology   = machine::topology();
  const machine::Isolation& isolation = machine::isolation();
  json caches                         = json::object();
  for (const machine::CpuCache& cache : topology.caches)
    caches["L" + std::to_string(cache.level) + " " + cache.kind] = cache.bytes;
  const auto maybe = [](const auto& value) { return value ? json(*value) : json(nullptr); };
  return {{"id", machine::machine_id()},
          {"cpu", topology.cpu.model_name},
          {"microarchitecture", topology.microarchitecture},
          {"packages", topology.packages},
          {"cores", topology.cores},
          {"threads", topology.threads},
          {"usable_threads", machine::usable_threads()},
          {"numa_nodes", topology.numa_nodes},
          {"cache_bytes", caches},
          {"memory_bytes", topology.memory_bytes},
          {"transparent_huge_pages", topology.transparent_huge_pages},
          {"governor", maybe(topology.governor)},
          {"kernel", topology.kernel},
          {"distribution", topology.distribution},
          {"gpu", gpu_facts(device)},
          {"virtual", isolation.virtual_machine},
          {"hypervisor", isolation.hypervisor},
          {"cgroup",
           {{"cpus", maybe(isolation.cgroup.cpus)}, {"memory_bytes", maybe(isolation.cgroup.memory_bytes)}}}};
}

json environment() {
  json variables = json::object();
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    if (const size_t equals = text.find('='); text.starts_with("FATHOM_") && equals != std::string_view::npos)
      variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace

nlohmann::json manifest(const std::vector<std::string>& argv, const lab::RunOptions& options,
                        const std::string& started) {
  json axes = json::object();
  for (const lab::Axis& axis : options.axes)
    for (const lab::Value& value : axis.values)
      std::visit([&](const auto& v) { axes[axis.name].push_back(v); }, value);
  return {{"argv", argv},
          {"started", started},
          {"version", FATHOM_VERSION},
          {"commit", lab::build_commit()},
          {"dirty", lab::build_dirty()},
          {"compiler", lab::build_compiler()},
          {"flags", lab::build_flags()},
          {"seed", options.seed},
          {"options",
           {{"quick", options.quick},
            {"cold_start", options.cold_start},
            {"check_only", options.check_only},
            {"iterations", options.iterations},
            {"warmup", options.warmup},
            {"repeat", options.repeat},
            {"timeout_multiplier", options.timeout_multiplier},
            {"suite_timeout_s", options.suite_timeout_s},
            {"axes", axes}}},
          {"environment", environment()},
          {"machine", machine_facts(options.device)}};
}

}  // namespace fathom::cli
