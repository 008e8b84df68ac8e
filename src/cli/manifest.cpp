#include "cli/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <array>
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

// Variables that change what is measured: Fathom's own, and those by which libraries and the driver are set.
constexpr std::array kSettings = {"FATHOM_",
                                  "CUDA_",
                                  "CUBLAS_",
                                  "CUBLASLT_",
                                  "CUDNN_",
                                  "NCCL_",
                                  "NVIDIA_TF32_OVERRIDE",
                                  "OMP_",
                                  "GOMP_",
                                  "MKL_",
                                  "DNNL_",
                                  "ONEDNN_",
                                  "OPENBLAS_",
                                  "PYTORCH_",
                                  "TORCH_",
                                  "TORCHINDUCTOR_",
                                  "TRITON_",
                                  "VLLM_",
                                  "FLASHINFER_",
                                  "GLIBC_TUNABLES",
                                  "MALLOC_"};
constexpr std::array kSecrets  = {"_KEY", "_TOKEN", "_SECRET", "_PASSWORD"};

// A path of a foreign variable (CUDA_HOME) says where something lies, not how it is set.
bool is_setting(std::string_view name, std::string_view value) {
  if (std::any_of(kSecrets.begin(), kSecrets.end(), [&](const char* end) { return name.ends_with(end); }))
    return false;
  if (!name.starts_with("FATHOM_") && value.starts_with("/")) return false;
  return std::any_of(kSettings.begin(), kSettings.end(),
                     [&](const char* begin) { return name.starts_with(begin); });
}

// The values of --api-key and its like, in either spelling.
std::vector<std::string> without_secrets(std::vector<std::string> argv) {
  for (size_t i = 0; i < argv.size(); ++i) {
    const size_t equals    = argv[i].find('=');
    const std::string flag = argv[i].substr(0, equals);
    if (!flag.starts_with("--") || !flag.ends_with("-key")) continue;
    if (equals != std::string::npos)
      argv[i] = flag + "=***";
    else if (i + 1 < argv.size())
      argv[i + 1] = "***";
  }
  return argv;
}

json environment() {
  json variables = json::object();
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals         = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    if (is_setting(name, value)) variables[std::string(name)] = value;
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
  return {{"argv", without_secrets(argv)},
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
