#include "cuda/cupti.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "cuda/library.h"

namespace fathom {
namespace {

// Since CUDA 13.0 a version is 10000 x major + 100 x minor + patch; before it was a small number.
constexpr uint32_t kCompiled = CUPTI_API_VERSION;

std::string version_text(uint32_t version) {
  return version < 10000 ? fmt::format("version {} (CUDA 12 or older)", version)
                         : fmt::format("CUDA {}.{}", version / 10000, version / 100 % 100);
}

Result<Cupti> load() {
  auto library = open_cuda_library("cupti", kCompiled / 10000);
  if (!library) return library.error();
  Cupti cupti;
  // CUPTI opens these by their bare names. They lie beside it, where the loader may not look.
  for (const char* name : {"libnvperf_host.so", "libnvperf_target.so"})
    dlopen((std::filesystem::path(library->path).parent_path() / name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  // The version comes first: a library of another version may lack functions.
  cupti.cuptiGetVersion = library->function<decltype(&::cuptiGetVersion)>("cuptiGetVersion");
  uint32_t version      = 0;
  if (!cupti.cuptiGetVersion || cupti.cuptiGetVersion(&version) != CUPTI_SUCCESS)
    return Error{fmt::format("{} is no CUPTI: it does not say its version", library->path)};
  if (version / 10000 != kCompiled / 10000 || version / 100 < kCompiled / 100)
    return Error{
        fmt::format("{} is of {}, and this program reads records of {} or later of that major version: "
                    "put that one first in LD_LIBRARY_PATH, or set FATHOM_CUDA_PATH",
                    library->path, version_text(version), version_text(kCompiled))};
#define FATHOM_CUPTI_LOAD(name)                             \
  cupti.name = library->function<decltype(&::name)>(#name); \
  if (!cupti.name) return Error{fmt::format("{} has no {}", library->path, #name)};
  FATHOM_CUPTI_FUNCTIONS(FATHOM_CUPTI_LOAD)
#undef FATHOM_CUPTI_LOAD
  return cupti;
}

std::string_view remedy(CUptiResult why) {
  switch (why) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "the driver keeps the GPU's counters to administrators: run as root, or load the nvidia module "
             "with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_DISABLED:
      return "another profiler or debugger is attached to this process, and CUPTI serves one at a time: run "
             "without it";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return "another process reads this GPU's counters (DCGM, ncu): stop it, or wait";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "this is a virtual GPU whose hypervisor forbids profiling";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "confidential computing is on, which forbids profiling";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "this is an instance of a partitioned GPU (MIG), which cannot be profiled";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return "it does not reach the CUDA driver: is there a GPU?";
    default:
      return "";
  }
}

}  // namespace

Result<const Cupti*> Cupti::open() {
  static const Result<Cupti> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

Error Cupti::refused(std::string_view call, CUptiResult why) const {
  const char* name = nullptr;
  if (!cuptiGetResultString || cuptiGetResultString(why, &name) != CUPTI_SUCCESS || !name) name = "unknown";
  const std::string_view what = remedy(why);
  return Error{what.empty() ? fmt::format("CUPTI's {} failed with {} ({})", call, name, static_cast<int>(why))
                            : fmt::format("{} ({}: {})", what, call, name)};
}

std::string injected_tool() {
  // nsys and other CUPTI clients enter a process this way; CUPTI itself notices ncu and cuda-gdb.
  const char* library = std::getenv("CUDA_INJECTION64_PATH");
  return library ? library : "";
}

}  // namespace fathom
