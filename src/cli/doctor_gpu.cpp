#include "cli/doctor_gpu.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/doctor_text.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "cuda/library.h"
#include "machine/gpu.h"
#include "machine/gpu_ceilings.h"
#include "machine/gpu_profiling.h"
#include "machine/machine_id.h"
#include "machine/measured_json.h"
#include "machine/measurement_scope.h"
#include "machine/nvml.h"

extern char** environ;

namespace fathom::cli {
namespace {

using namespace machine;
using Json = nlohmann::json;

// ---- libraries that variants and profilers open

struct Library {
  const char* name;
  int major;
  const char* used_for;
};
constexpr Library kLibraries[] = {{"cublas", 13, "GEMM"},
                                  {"cublasLt", 13, "GEMM in fp8, with epilogues"},
                                  {"cudnn", 9, "attention, convolutions"},
                                  {"nccl", 2, "collectives"},
                                  {"cupti", 13, "profiling"},
                                  {"nvrtc", 13, "compiling at run time"},
                                  {"cufile", 0, "storage to GPU"}};

// ---- profiling rungs, tried in a process of their own

constexpr int kProbeLimitMs = 60'000;

std::string output_of_probe(GpuRung rung) {
  const std::string name(to_string(rung));
  int fds[2];
  FATHOM_SYSTEM(pipe2(fds, O_CLOEXEC));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
  char* const argv[] = {const_cast<char*>("fathom"), const_cast<char*>("doctor"),
                        const_cast<char*>(kProbeGpuProfiling), const_cast<char*>(name.c_str()), nullptr};
  pid_t pid          = 0;
  const int error    = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);
  std::string output;
  for (bool open = error == 0; open;) {
    pollfd ready{fds[0], POLLIN, 0};
    char buffer[4096];
    if (poll(&ready, 1, kProbeLimitMs) <= 0) {
      kill(pid, SIGKILL);
      open = false;
    } else if (const ssize_t n = read(fds[0], buffer, sizeof buffer); n > 0) {
      output.append(buffer, static_cast<size_t>(n));
    } else {
      open = false;
    }
  }
  close(fds[0]);
  if (error != 0) throw SystemError(fmt::format("no process to try profiling in: {}", std::strerror(error)));
  int status = 0;
  FATHOM_SYSTEM(waitpid(pid, &status, 0));
  if (WIFSIGNALED(status))
    throw SystemError(fmt::format("the process that tried it ended by signal {} ({})", WTERMSIG(status),
                                  strsignal(WTERMSIG(status))));
  return output;
}

GpuRungState in_own_process(GpuRung rung) {
  try {
    const Json json            = Json::parse(output_of_probe(rung), nullptr, /*allow_exceptions=*/false);
    Result<GpuRungState> state = gpu_rung_from_json(json);
    if (state) return std::move(state).value();
    return {.rung = rung, .why_not = state.error().message, .seen = {}};
  } catch (const std::exception& problem) {
    return {.rung = rung, .why_not = problem.what(), .seen = {}};
  }
}

std::vector<GpuRungState> profiling_rungs() {
  std::vector<GpuRungState> rungs;
  for (const GpuRung rung : kGpuRungs)
    rungs.push_back(wants_own_process(rung) ? in_own_process(rung) : machine::probe_gpu_profiling(rung));
  return rungs;
}

// ---- no GPU

std::vector<std::string> installed_gpus() {
  std::vector<std::string> names;
  if (const auto gpus = nvml_gpus())
    for (const NvmlGpu& gpu : *gpus) names.push_back(gpu.name());
  return names;
}

// ---- text

std::string state_text(const GpuSensors& s) {
  std::vector<std::string> words;
  if (s.sm_clock_hz) words.push_back(fmt::format("{:.0f} MHz", *s.sm_clock_hz / 1e6));
  if (s.power_w) words.push_back(fmt::format("{:.0f} W", *s.power_w));
  if (s.temperature_c) words.push_back(fmt::format("{:.0f} C", *s.temperature_c));
  for (const std::string& reason : clock_event_names(s.clock_event_reasons.value_or(0)))
    words.push_back(reason);
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string link_text(const GpuFacts& g) {
  if (!g.pcie_generation || !g.pcie_lanes) return fmt::format("at {}", g.pci_address);
  return fmt::format("PCIe {}.0 x{} at {}, {} copy engines", *g.pcie_generation, *g.pcie_lanes, g.pci_address,
                     g.copy_engines);
}

void print_facts(const GpuFacts& g) {
  section("GPU");
  fact("id", gpu_machine_id());
  fact("name", fmt::format("{}, compute capability {}.{}", g.name, g.major, g.minor));
  fact("uuid", fmt::format("{}, number {} of {}", g.uuid, g.index, g.count));
  fact("multiprocessors", fmt::format("{}, each {} threads, {} registers", g.multiprocessors,
                                      g.threads_per_multiprocessor, g.registers_per_multiprocessor));
  fact("shared memory",
       fmt::format("{} a multiprocessor, {} a block", size_text(g.shared_bytes_per_multiprocessor),
                   size_text(g.shared_bytes_per_block)));
  fact("L2", size_text(g.l2_bytes));
  fact("memory", fmt::format("{}, {} bits at {:.2f} GHz: {:.2f} TB/s theoretical", size_text(g.memory_bytes),
                             g.memory_bus_bits, g.max_memory_clock_hz / 1e9, g.dram_bytes_per_s() / 1e12));
  std::string clock = fmt::format("up to {:.0f} MHz", g.max_clock_hz / 1e6);
  if (const auto sensors = nvml_gpu(g.uuid)) {
    clock += "; now " + state_text(sensors->sensors());
    if (const auto limit = sensors->power_limit_w()) clock += fmt::format("; at most {:.0f} W", *limit);
  }
  fact("clock", clock);
  fact("link", link_text(g));
  if (!superchip(g).empty()) fact("superchip", superchip(g));
  folded("  host memory          ",
         fmt::format("{}: {}", to_string(host_memory(g)), strategy(host_memory(g))));
  fact("driver",
       fmt::format("{}, supports CUDA {}; built with {}", g.driver.empty() ? "version unknown" : g.driver,
                   cuda_version_text(g.driver_cuda), cuda_version_text(g.runtime_cuda)));
  for (int from = 0; from < g.count && g.count > 1; ++from) {
    std::vector<int> reached;
    for (int to = 0; to < g.count; ++to)
      if (g.peer_access[from][to]) reached.push_back(to);
    fact(fmt::format("peers of GPU {}", from),
         reached.empty() ? "none" : fmt::format("{}", fmt::join(reached, " ")));
  }
}

void print_libraries() {
  section("CUDA libraries, opened at run time");
  for (const Library& library : kLibraries) {
    const auto found = open_cuda_library(library.name, library.major);
    folded(fmt::format("  {:<3} {:<10} {:<33} ", found ? "yes" : "no", library.name, library.used_for),
           found ? found->path : "");
    if (!found) folded("        because ", found.error().message);
  }
}

void state_row(std::string_view name, const Measured& measured, double unit, const GpuSensors& during) {
  folded(fmt::format("  {:<22}  {}  ", name, cell(measured, unit)), state_text(during));
}

std::string_view unit_text(GpuUnit unit) {
  constexpr std::string_view kWords[] = {"CUDA cores", "tensor cores", "cuBLASLt 8192"};
  return kWords[static_cast<int>(unit)];
}

void print_gpu_ceilings(const GpuCeilings& c) {
  section("Ceilings of the GPU");
  folded(
      "  ",
      fmt::format(
          "measured {} in {:.0f} s; best is the best ever seen; {}; a copy counts bytes read and written",
          c.measured_at, c.seconds, c.clock_settled ? "the clock had settled" : "the clock had not settled"));
  header("bandwidth, GB/s", "all multiprocessors, and the GPU's state under that load");
  for (const GpuBandwidth& entry : c.bandwidths)
    state_row(fmt::format("{:<14}{}", to_string(entry.level), to_string(entry.traffic)), entry.bytes_per_s,
              1e9, entry.during);
  header("arithmetic, TFLOP/s", "on random data; the best also on zeros, which draw less power");
  for (const GpuPeak& entry : c.peaks) {
    state_row(fmt::format("{:<14}{}", unit_text(entry.unit), name_of(entry)), entry.flops_per_s, 1e12,
              entry.during);
  }
  header("latency, ns", "one thread");
  for (const GpuLatency& entry : c.load_latencies)
    row(fmt::format("load, {:<6}{}", to_string(entry.level), size_text(entry.bytes)), entry.ns, nullptr, 1);
  const std::pair<std::string_view, const Measured*> kLaunches[] = {
      {"back-to-back launch", &c.launch_ns},
      {"launch to completion", &c.launch_to_finish_ns},
      {"CUDA graph node", &c.graph_node_ns}};
  for (const auto& [name, measured] : kLaunches)
    if (measured->trials > 0) row(name, *measured, nullptr, 1);
  if (!c.links.empty()) header("host copies, GB/s", size_text(c.links.front().bytes) + " a copy");
  for (const LinkRate& entry : c.links)
    row(fmt::format("{} {}", entry.pinned ? "page-locked" : "pageable",
                    entry.direction == LinkDirection::to_gpu ? "to GPU" : "to host"),
        entry.bytes_per_s, nullptr, 1e9);
  if (!c.peers.empty()) header("copies between GPUs, GB/s", "256 MiB a copy");
  for (const PeerRate& entry : c.peers)
    row(fmt::format("{} to {}{}", entry.from, entry.to, entry.direct ? "" : ", by the host"),
        entry.bytes_per_s, nullptr, 1e9);
  for (const PeerRate& entry : c.peers)
    if (entry.both_bytes_per_s.trials > 0)
      row(fmt::format("{} and {}, both at once", entry.from, entry.to), entry.both_bytes_per_s, nullptr, 1e9);
  if (!c.peers.empty() && !c.peers.front().copies.empty())
    header("a copy between GPUs, us", "of copies in a row; no launch");
  for (const PeerRate& entry : c.peers)
    for (const PeerCopy& copy : entry.copies)
      row(fmt::format("{} to {}, {}", entry.from, entry.to, size_text(copy.bytes)), copy.ns, nullptr, 1e3);
  for (const NotMeasured& missing : c.not_measured)
    folded("  not measured: ", fmt::format("{}: {}", missing.what, missing.why));
}

void print_rungs(const std::vector<GpuRungState>& rungs) {
  section("Profiling capabilities of the GPU");
  for (const GpuRungState& state : rungs) {
    folded(fmt::format("  {:<3} {:<15} {:<41} ", state.why_not ? "no" : "yes", to_string(state.rung),
                       describe(state.rung)),
           state.seen);
    if (state.why_not) folded("        because ", *state.why_not);
  }
}

// ---- JSON

Json facts_json(const GpuFacts& g) {
  Json json = {{"id", gpu_machine_id()},
               {"name", g.name},
               {"uuid", g.uuid},
               {"pci_address", g.pci_address},
               {"index", g.index},
               {"count", g.count},
               {"compute_capability", fmt::format("{}.{}", g.major, g.minor)},
               {"multiprocessors", g.multiprocessors},
               {"threads_per_multiprocessor", g.threads_per_multiprocessor},
               {"registers_per_multiprocessor", g.registers_per_multiprocessor},
               {"shared_bytes_per_multiprocessor", g.shared_bytes_per_multiprocessor},
               {"shared_bytes_per_block", g.shared_bytes_per_block},
               {"l2_bytes", g.l2_bytes},
               {"memory_bytes", g.memory_bytes},
               {"memory_bus_bits", g.memory_bus_bits},
               {"max_clock_hz", g.max_clock_hz},
               {"max_memory_clock_hz", g.max_memory_clock_hz},
               {"copy_engines", g.copy_engines},
               {"pcie_generation", or_null(g.pcie_generation)},
               {"pcie_lanes", or_null(g.pcie_lanes)},
               {"driver", g.driver.empty() ? Json(nullptr) : Json(g.driver)},
               {"driver_cuda", cuda_version_text(g.driver_cuda)},
               {"runtime_cuda", cuda_version_text(g.runtime_cuda)},
               {"host_memory", to_string(host_memory(g))},
               {"superchip", superchip(g).empty() ? Json(nullptr) : Json(superchip(g))},
               {"memory_numa_node", g.memory_numa_node < 0 ? Json(nullptr) : Json(g.memory_numa_node)},
               {"host_numa_node", g.host_numa_node < 0 ? Json(nullptr) : Json(g.host_numa_node)},
               {"peer_access", g.peer_access}};
  if (const auto sensors = nvml_gpu(g.uuid)) json["now"] = to_json(sensors->sensors());
  return json;
}

Json libraries_json() {
  Json libraries = Json::array();
  for (const Library& library : kLibraries) {
    const auto found = open_cuda_library(library.name, library.major);
    libraries.push_back({{"name", library.name},
                         {"major", library.major},
                         {"path", found ? Json(found->path) : Json(nullptr)},
                         {"why_not", found ? Json(nullptr) : Json(found.error().message)}});
  }
  return libraries;
}

// The ceilings of this process's GPU, or null where `quick` and none are cached.
const GpuCeilings* known_gpu_ceilings(const DoctorFlags& flags) {
  const GpuFacts& facts = *gpu();
  if (flags.quick &&
      !std::filesystem::exists(gpu_ceilings_path({gpu_machine_id(), facts.uuid, facts.driver})))
    return nullptr;
  return &gpu_ceilings(flags.refresh ? Refresh::always : Refresh::if_missing);
}

}  // namespace

void print_gpu(const DoctorFlags& flags) {
  const GpuFacts* facts = gpu();
  if (!facts) {
    const std::vector<std::string> installed = installed_gpus();
    section(installed.empty() ? fmt::format("No GPU was found: {}.", why_no_gpu())
                              : fmt::format("GPU: {} installed, but not used: {}.",
                                            fmt::join(installed, ", "), why_no_gpu()));
    return;
  }
  print_facts(*facts);
  const GpuCeilings* known = known_gpu_ceilings(flags);
  if (!known) {
    section(
        "Ceilings of the GPU: not measured yet; `fathom doctor` measures them in about 20 s, as does the "
        "first run.");
    return;
  }
  if (flags.quick) {
    print_gpu_ceilings(*known);
    return;
  }
  print_features(FeatureKind::gpu, "Features of the GPU");
  print_libraries();
  print_gpu_ceilings(*known);
  const std::vector<GpuRungState> rungs = profiling_rungs();
  print_rungs(rungs);
  print_claims(gpu_measurement_scope(*facts, *known, rungs), "this GPU");
}

nlohmann::json gpu_json(const DoctorFlags& flags) {
  const GpuFacts* facts = gpu();
  if (!facts) return {{"available", false}, {"why_not", why_no_gpu()}, {"installed", installed_gpus()}};
  const GpuCeilings* known = known_gpu_ceilings(flags);
  if (flags.quick)
    return {{"available", true},
            {"why_not", nullptr},
            {"facts", facts_json(*facts)},
            {"libraries", nullptr},
            {"ceilings", known ? to_json(*known) : Json(nullptr)},
            {"profiling", nullptr},
            {"claims", nullptr}};
  const std::vector<GpuRungState> rungs = profiling_rungs();
  const MeasurementScope claims         = gpu_measurement_scope(*facts, *known, rungs);
  Json profiling                        = Json::array();
  for (const GpuRungState& state : rungs) profiling.push_back(to_json(state));
  return {{"available", true},
          {"why_not", nullptr},
          {"facts", facts_json(*facts)},
          {"libraries", libraries_json()},
          {"ceilings", to_json(*known)},
          {"profiling", std::move(profiling)},
          {"claims", {{"can", claims.can}, {"cannot", claims.cannot}}}};
}

int probe_gpu_profiling(const std::string& rung) {
  const std::optional<GpuRung> known = gpu_rung_named(rung);
  if (!known) throw ContractError(fmt::format("{}={}: no such rung", kProbeGpuProfiling, rung));
  line("{}", to_json(machine::probe_gpu_profiling(*known)).dump());
  return kExitOk;
}

}  // namespace fathom::cli
