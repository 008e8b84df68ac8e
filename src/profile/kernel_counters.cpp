#include "profile/kernel_counters.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "cuda/check.h"
#include "cuda/cupti.h"
#include "cuda/device.h"
#include "machine/range_profiler.h"

namespace fathom::profile {
namespace {

struct Counting {
  const Cupti* cupti = nullptr;
  machine::ProfiledGpu gpu;
  std::vector<uint8_t> available;
};

// All checks that can fail before a kernel runs.
Result<Counting> prepare() {
  if (const std::string tool = injected_tool(); !tool.empty())
    return Error{
        fmt::format("{} is injected into this process (CUDA_INJECTION64_PATH), and one tool at a time "
                    "reads counters: run without it",
                    tool)};
  if (device_count() == 0) return Error{why_no_device({0})};
  const auto cupti = Cupti::open();
  if (!cupti) return cupti.error();
  auto gpu = machine::profiled_gpu(**cupti, CUPTI_PROFILER_RANGE_PROFILING);
  if (!gpu) return gpu.error();
  auto available = machine::available_counters(**cupti, gpu->context);
  if (!available) return available.error();
  return Counting{.cupti = *cupti, .gpu = *std::move(gpu), .available = *std::move(available)};
}

}  // namespace

Result<CounterRun> count_kernels(const CounterChoice& choice, size_t max_kernels,
                                 const std::function<void()>& call) {
  const auto counting = prepare();
  if (!counting) return counting.error();
  const std::vector<Counter> wanted = counters(choice, counting->gpu.chip);
  if (wanted.empty())
    return Error{fmt::format("there is no table of counters for the chip {} (profile/metrics.cpp)",
                             counting->gpu.chip)};
  std::vector<std::string> names;
  for (const Counter& counter : wanted) names.emplace_back(counter.cupti);
  auto config =
      machine::CounterConfig::create(*counting->cupti, counting->gpu.chip, names, counting->available);
  if (!config) return config.error();

  FATHOM_CUDA(cudaDeviceSynchronize());
  machine::RangeProfiler profiler(*counting->cupti);
  if (auto enabled = profiler.enable(counting->gpu.context); !enabled) return enabled.error();
  if (auto configured = profiler.configure(*config, std::max<size_t>(1, max_kernels)); !configured)
    return configured.error();
  if (auto started = profiler.start(); !started) return started.error();
  call();
  FATHOM_CUDA(cudaDeviceSynchronize());
  const auto complete = profiler.stop();
  if (!complete) return complete.error();
  const auto dropped = profiler.decode();
  if (!dropped) return dropped.error();
  const auto ranges = profiler.ranges();
  if (!ranges) return ranges.error();

  CounterRun run{.passes = config->passes()};
  if (!*complete) run.notes.push_back("not every pass was made: some counters may be missing");
  if (*dropped > 0)
    run.notes.push_back(fmt::format("the counters of {} kernels were lost: the call launched more than {}",
                                    *dropped, max_kernels));
  for (size_t range = 0; range < *ranges; ++range) {
    const auto values = config->values(profiler.data(), range);
    if (!values) return values.error();
    KernelCounters& kernel = run.kernels.emplace_back();
    for (size_t i = 0; i < wanted.size(); ++i) kernel[std::string(wanted[i].name)] = (*values)[i];
  }
  return run;
}

std::string why_no_counters() {
  const auto counting = prepare();
  return counting ? "" : counting.error().message;
}

}  // namespace fathom::profile
