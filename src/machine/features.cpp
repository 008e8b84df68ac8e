#include "machine/features.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "core/expect.h"
#include "machine/gpu.h"
#include "machine/perf_counters.h"
#include "machine/topology.h"

namespace fathom::machine {
namespace {

using Answer = std::optional<std::string>;  // absent: available

struct Entry {
  Feature feature;
  const char* name;
  const char* description;
  FeatureKind kind;
  Answer (*probe)();
};

Answer cpu_flag(const char* flag) {
  const CpuIdentity& cpu = topology().cpu;
  if (std::binary_search(cpu.flags.begin(), cpu.flags.end(), flag)) return std::nullopt;
  return fmt::format("this processor ({}{}{}) and kernel do not offer {}", cpu.model_name,
                     topology().microarchitecture.empty() ? "" : ", ", topology().microarchitecture, flag);
}

// Linux grants the large tile state only to processes that request it (Documentation/arch/x86/xstate.rst).
Answer tile_permission() {
#if defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData          = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return std::nullopt;
  return fmt::format("the kernel refuses tile registers: arch_prctl: {}", std::strerror(errno));
#else
  return "no x86-64 processor";
#endif
}

Answer amx(const char* flag) {
  if (const Answer no = cpu_flag("amx_tile")) return no;
  if (const Answer no = cpu_flag(flag)) return no;
  return tile_permission();
}

Answer readable(const char* path) {
  const std::optional<std::string> text = read_text(path);
  if (text && !text->empty()) return std::nullopt;
  return fmt::format("{} cannot be read: the kernel was built or booted without it", path);
}

Answer program_on_path(const char* name) {
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0)
      return std::nullopt;
  return fmt::format("{} is not on PATH: install the package {}", name, name);
}

Answer rusage_of_thread() {
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return std::nullopt;
  return fmt::format("getrusage(RUSAGE_THREAD): {}", std::strerror(errno));
}

Answer io_uring() {
  alignas(8) char parameters[120] = {};  // struct io_uring_params, zeroed: a plain ring
  const long ring                 = syscall(SYS_io_uring_setup, 4, parameters);
  if (ring >= 0) {
    close(static_cast<int>(ring));
    return std::nullopt;
  }
  return fmt::format("io_uring_setup: {} (older kernel, seccomp filter or kernel.io_uring_disabled)",
                     std::strerror(errno));
}

Answer transparent_huge_pages() {
  const std::string& mode = topology().transparent_huge_pages;
  if (mode == "always" || mode == "madvise") return std::nullopt;
  return fmt::format("/sys/kernel/mm/transparent_hugepage/enabled is {}", mode.empty() ? "absent" : mode);
}

Answer shared_library(const char* soname, const char* remedy) {
  if (void* library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL)) {
    dlclose(library);
    return std::nullopt;
  }
  return fmt::format("{} does not load: {}", soname, remedy);
}

// `needs`: the GPUs that have the feature, for the reason why another has not.
Answer of_gpu(bool (*has)(const GpuFacts&), const char* needs) {
  const GpuFacts* facts = gpu();
  if (!facts) return fmt::format("no GPU: {}", why_no_gpu());
  if (has(*facts)) return std::nullopt;
  return fmt::format("{} has compute capability {}.{}: it takes {}", facts->name, facts->major, facts->minor,
                     needs);
}

Answer several_gpus() {
  const GpuFacts* facts = gpu();
  if (!facts) return fmt::format("no GPU: {}", why_no_gpu());
  if (facts->count > 1) return std::nullopt;
  return fmt::format("one GPU is visible, {}", facts->name);
}

constexpr FeatureKind kIsa = FeatureKind::instruction_set, kProfiling = FeatureKind::profiling,
                      kSystem = FeatureKind::system, kLibrary = FeatureKind::library, kGpu = FeatureKind::gpu;

// In the order of the enum.
constexpr Entry kEntries[] = {
    {Feature::sse2, "sse2", "128-bit vectors", kIsa, [] { return cpu_flag("sse2"); }},
    {Feature::avx, "avx", "256-bit floating point", kIsa, [] { return cpu_flag("avx"); }},
    {Feature::avx2, "avx2", "256-bit integers, gathers", kIsa, [] { return cpu_flag("avx2"); }},
    {Feature::fma, "fma", "fused multiply-add", kIsa, [] { return cpu_flag("fma"); }},
    {Feature::f16c, "f16c", "fp16 conversions", kIsa, [] { return cpu_flag("f16c"); }},
    {Feature::avx_vnni, "avx_vnni", "256-bit int8 dot products", kIsa, [] { return cpu_flag("avx_vnni"); }},
    {Feature::avx512f, "avx512f", "512-bit vectors", kIsa, [] { return cpu_flag("avx512f"); }},
    {Feature::avx512bw, "avx512bw", "512-bit bytes and words", kIsa, [] { return cpu_flag("avx512bw"); }},
    {Feature::avx512vl, "avx512vl", "AVX-512 on narrower vectors", kIsa, [] { return cpu_flag("avx512vl"); }},
    {Feature::avx512_vnni, "avx512_vnni", "512-bit int8 dot products", kIsa,
     [] { return cpu_flag("avx512_vnni"); }},
    {Feature::avx512_bf16, "avx512_bf16", "512-bit bf16 dot products", kIsa,
     [] { return cpu_flag("avx512_bf16"); }},
    {Feature::avx512_fp16, "avx512_fp16", "512-bit fp16 arithmetic", kIsa,
     [] { return cpu_flag("avx512_fp16"); }},
    {Feature::amx_int8, "amx_int8", "int8 matrix tiles", kIsa, [] { return amx("amx_int8"); }},
    {Feature::amx_bf16, "amx_bf16", "bf16 matrix tiles", kIsa, [] { return amx("amx_bf16"); }},
    {Feature::neon, "neon", "128-bit vectors of ARM", kIsa, [] { return cpu_flag("asimd"); }},
    {Feature::perf_hardware, "perf_hardware", "counted cycles, instructions, misses", kProfiling,
     missing_hardware_counters},
    {Feature::perf_software, "perf_software", "task clock, faults, switches, migrations", kProfiling,
     missing_software_counters},
    {Feature::callgrind, "callgrind", "exact instruction counts, 50 times slower", kProfiling,
     [] { return program_on_path("valgrind"); }},
    {Feature::rusage_thread, "rusage_thread", "switches and faults of a thread", kProfiling,
     rusage_of_thread},
    {Feature::schedstat, "schedstat", "time runnable but waiting", kProfiling,
     [] { return readable("/proc/self/schedstat"); }},
    {Feature::pressure, "pressure", "share of time something waited for a CPU", kProfiling,
     [] { return readable("/proc/pressure/cpu"); }},
    {Feature::io_uring, "io_uring", "queued asynchronous I/O", kSystem, io_uring},
    {Feature::transparent_huge_pages, "transparent_huge_pages", "2 MiB pages by madvise", kSystem,
     transparent_huge_pages},
    {Feature::cuda_driver, "cuda_driver", "libcuda.so.1: NVIDIA GPUs", kLibrary,
     [] { return shared_library("libcuda.so.1", "no NVIDIA driver is installed"); }},
    {Feature::openblas, "openblas", "libopenblas.so.0: library variants", kLibrary,
     [] { return shared_library("libopenblas.so.0", "install libopenblas0-pthread"); }},
    {Feature::onednn, "onednn", "libdnnl.so.2 or .3: library variants", kLibrary,
     [] {
       const Answer no = shared_library("libdnnl.so.2", "install libdnnl-dev");
       return no && !shared_library("libdnnl.so.3", "") ? std::nullopt : no;
     }},
    {Feature::tma, "tma", "bulk tensor copies into shared memory", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.tma(); }, "9.0 (Hopper) or later"); }},
    {Feature::clusters, "clusters", "blocks that reach each other's shared memory", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.cluster_launch; }, "9.0 (Hopper) or later"); }},
    {Feature::wgmma, "wgmma", "asynchronous matrix products of a warpgroup", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.wgmma(); }, "9.0 (Hopper), and no other"); }},
    {Feature::fp8_tensor, "fp8_tensor", "fp8 on tensor cores", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.fp8_tensor(); }, "8.9 (Ada) or later"); }},
    {Feature::fp4_tensor, "fp4_tensor", "fp4 on tensor cores", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.fp4_tensor(); }, "10.0 (Blackwell) or later"); }},
    {Feature::blackwell, "blackwell", "tcgen05, tensor memory, loads of 32 bytes", kGpu,
     [] { return of_gpu([](const GpuFacts& g) { return g.tcgen05(); }, "10.x or 11.x (Blackwell)"); }},
    {Feature::c2c, "c2c", "one address space with the CPU, by the line", kGpu,
     [] {
       return of_gpu([](const GpuFacts& g) { return host_memory(g) == HostMemory::coherent; },
                     "a Grace superchip, whose GPU reads the host's page tables");
     }},
    {Feature::several_gpus, "several_gpus", "at least two GPUs", kGpu, several_gpus},
};

const Entry& entry(Feature feature) {
  const size_t index = static_cast<size_t>(feature);
  FATHOM_EXPECT(index < std::size(kEntries) && kEntries[index].feature == feature,
                "the table of features is not in the order of enum Feature");
  return kEntries[index];
}

}  // namespace

const std::vector<Feature>& all_features() {
  static const std::vector<Feature> features = [] {
    std::vector<Feature> list;
    for (const Entry& entry : kEntries) list.push_back(entry.feature);
    return list;
  }();
  return features;
}

std::string_view to_string(Feature feature) { return entry(feature).name; }
std::string_view describe(Feature feature) { return entry(feature).description; }
FeatureKind kind(Feature feature) { return entry(feature).kind; }

std::optional<std::string> missing(Feature feature) {
  static std::mutex mutex;
  static std::array<std::optional<Answer>, std::size(kEntries)> answers;
  const Entry& wanted = entry(feature);
  const std::lock_guard lock(mutex);
  std::optional<Answer>& answer = answers[static_cast<size_t>(feature)];
  if (!answer) answer = wanted.probe();
  return *answer;
}

}  // namespace fathom::machine
