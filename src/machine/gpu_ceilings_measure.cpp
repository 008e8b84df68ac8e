#include "machine/gpu_ceilings_measure.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "core/utc_time.h"
#include "cuda/check.h"
#include "cuda/cublaslt_matmul.h"
#include "cuda/device.h"
#include "cuda/device_guard.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "machine/gpu.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/gpu_peer_copy.h"
#include "measure/clock.h"
#include "measure/statistics.h"

namespace fathom::machine {
namespace {

constexpr int kTrials             = 12;
constexpr double kTrialS          = 0.020;  // at least, of one trial
constexpr double kWindowS         = 0.005;  // of the clock, while it settles
constexpr double kSettledWithin   = 0.01;
constexpr int64_t kDramBytes      = int64_t{4} << 30;
constexpr int64_t kL2Bytes        = 16 << 20;
constexpr int64_t kLatencyBytes   = int64_t{1} << 30;  // of the cycle in DRAM
constexpr int64_t kLatencyL2Bytes = 8 << 20;
constexpr int64_t kLinkBytes      = 128 << 20;
constexpr int64_t kSide           = 8192;  // of cuBLASLt's matrices

double now_s() { return 1e-9 * static_cast<double>(measure::now_ns(measure::Clock::wall)); }

struct Seen {
  Measured value;
  GpuSensors during;
};

// Enqueues n units of work and returns their amount, in bytes, flops or loads.
using Enqueue = std::function<double(int64_t n)>;

const GpuFacts& facts_of(DeviceId device) {
  const GpuFacts* facts = gpu(device);
  if (!facts) throw SystemError(why_no_gpu(device));
  return *facts;
}

// The GPU under test: stream, memory, sensors, and timing of work on the stream.
class Bench {
 public:
  explicit Bench(DeviceId id) : facts_(facts_of(id)), device_(fathom::device(id)), current_(id) {
    if (Result<NvmlGpu> sensors = nvml_gpu(facts_.uuid)) sensors_ = *sensors;
    size_t free = 0, total = 0;
    FATHOM_CUDA(cudaMemGetInfo(&free, &total));
    memory_bytes_ = std::min(kDramBytes, static_cast<int64_t>(free) / 2 / kGpuLine * kGpuLine);
    memory_       = static_cast<std::byte*>(device_.allocate(memory_bytes_));
    sink_         = device_.allocate(256);
    device_.fill_uniform(memory_, memory_bytes_ / 4, DType::fp32, 1, -1, 1);
  }
  ~Bench() {
    device_.release(memory_);
    device_.release(sink_);
  }
  Bench(const Bench&)            = delete;
  Bench& operator=(const Bench&) = delete;

  const GpuKernels& kernels() const { return *gpu_kernels(); }
  StreamRef stream() const { return device_.stream(); }
  Device& device() const { return device_; }
  const GpuFacts& facts() const { return facts_; }
  std::byte* memory() const { return memory_; }
  int64_t memory_bytes() const { return memory_bytes_; }
  void* sink() const { return sink_; }

  // GPU time, by events.
  double seconds(const Enqueue& enqueue, int64_t n, double* amount = nullptr) const {
    start_.record(stream());
    const double work = enqueue(n);
    end_.record(stream());
    end_.synchronize();
    if (amount) *amount = work;
    return 1e-3 * elapsed_ms(start_, end_);
  }

  int64_t units_for(double wanted_s, const Enqueue& enqueue) const {
    seconds(enqueue, 1);  // loads the kernel
    for (int64_t n = 1;; n *= 2) {
      const double took = seconds(enqueue, n);
      if (took >= wanted_s / 10)
        return std::max<int64_t>(1, std::llround(std::ceil(static_cast<double>(n) * wanted_s / took)));
    }
  }

  // Work per second.
  std::vector<double> rates(const Enqueue& enqueue, int64_t n, int trials = kTrials) const {
    std::vector<double> rates;
    for (int trial = 0; trial < trials; ++trial) {
      double amount     = 0;
      const double took = seconds(enqueue, n, &amount);
      rates.push_back(amount / took);
    }
    return rates;
  }

  Seen measure(const Enqueue& enqueue) const {
    const int64_t n = units_for(kTrialS, enqueue);
    Seen seen{.value = summarise(rates(enqueue, n), Better::higher), .during = {}};
    // Reads the sensors in the middle of another three trials, as they show the current state.
    enqueue(3 * n);
    std::this_thread::sleep_for(std::chrono::duration<double>(kTrialS));
    if (sensors_) seen.during = sensors_->sensors();
    device_.synchronize();
    return seen;
  }

 private:
  const GpuFacts& facts_;
  Device& device_;
  const DeviceGuard current_;  // launches of the thread that made this go to device_
  std::optional<NvmlGpu> sensors_;
  Event start_, end_;
  std::byte* memory_    = nullptr;
  int64_t memory_bytes_ = 0;
  void* sink_           = nullptr;
};

// An idle H200 runs at 345 MHz and reaches 1980 MHz after some hundred milliseconds. The rate of
// multiply-adds is proportional to the clock.
bool settle_clock(const Bench& bench) {
  const Enqueue multiply_adds = [&](int64_t n) {
    return bench.kernels().fma(DType::fp32, n, bench.sink(), bench.stream());
  };
  constexpr size_t kWindows = 5;
  const double start        = now_s();
  std::vector<double> windows;
  while (now_s() - start < 3) {
    const int64_t n = bench.units_for(kWindowS, multiply_adds);
    windows.push_back(bench.rates(multiply_adds, n, 1).front());
    if (windows.size() < kWindows || now_s() - start < 0.3) continue;
    const auto [lowest, highest] = std::minmax_element(windows.end() - kWindows, windows.end());
    if (*highest <= *lowest * (1 + kSettledWithin)) return true;
  }
  return false;
}

// ---- bandwidth

int64_t working_set(const Bench& bench, GpuLevel level) {
  switch (level) {
    case GpuLevel::dram:
      return bench.memory_bytes();
    case GpuLevel::l2:
      return std::min(kL2Bytes, bench.facts().l2_bytes / 3 / (64 << 10) * (64 << 10));
    default:
      return kGpuL1Bytes;
  }
}

Enqueue again(std::function<double()> once) {
  return [once = std::move(once)](int64_t n) {
    double amount = 0;
    for (int64_t i = 0; i < n; ++i) amount += once();
    return amount;
  };
}

Enqueue traffic_over(const Bench& bench, GpuLevel level, Traffic traffic) {
  const GpuKernels& k      = bench.kernels();
  const int64_t bytes      = working_set(bench, level);
  std::byte* const data    = bench.memory();
  std::byte* const upper   = data + bytes / 2;
  void* const sink         = bench.sink();
  const StreamRef stream   = bench.stream();
  constexpr int64_t kSteps = 64;
  switch (level) {
    case GpuLevel::shared:
      return [=, &k](int64_t n) { return k.shared_read(n * kSteps, sink, stream); };
    case GpuLevel::l1:
      return [=, &k](int64_t n) { return k.l1_read(data, n * kSteps, sink, stream); };
    case GpuLevel::l2:
      if (traffic == Traffic::read)
        return [=, &k](int64_t n) { return k.read_repeatedly(data, bytes, n, sink, stream); };
      if (traffic == Traffic::write)
        return [=, &k](int64_t n) { return k.write_repeatedly(data, bytes, n * kSteps, stream); };
      return [=, &k](int64_t n) { return k.copy_repeatedly(upper, data, bytes / 2, n * kSteps, stream); };
    case GpuLevel::dram:
      if (traffic == Traffic::read) return again([=, &k] { return k.read(data, bytes, sink, stream); });
      if (traffic == Traffic::write) return again([=, &k] { return k.write(data, bytes, stream); });
      return again([=, &k] { return k.copy(upper, data, bytes / 2, stream); });
  }
  return {};
}

// ---- arithmetic

Enqueue arithmetic(const Bench& bench, DType dtype, GpuUnit unit) {
  constexpr int64_t kSteps = 16;
  const auto loop          = unit == GpuUnit::tensor_cores ? bench.kernels().mma : bench.kernels().fma;
  return [&bench, dtype, loop](int64_t n) { return loop(dtype, n * kSteps, bench.sink(), bench.stream()); };
}

// The rate of the same loop on zeros: no real product reaches it, so it bounds the best.
double highest_on_zeros(const Bench& bench, DType dtype) {
  const Enqueue zeros = [&](int64_t n) {
    return bench.kernels().mma_of_zeros(dtype, n * 16, bench.sink(), bench.stream());
  };
  const std::vector<double> rates = bench.rates(zeros, bench.units_for(kTrialS, zeros), 3);
  return *std::max_element(rates.begin(), rates.end());
}

Seen measure_flops(const Bench& bench, DType dtype, GpuUnit unit) {
  Seen seen = bench.measure(arithmetic(bench, dtype, unit));
  if (unit == GpuUnit::tensor_cores)
    seen.value.best = std::max(seen.value.best, highest_on_zeros(bench, dtype));
  return seen;
}

Seen measure_cublaslt(const Bench& bench, DType dtype) {
  const DType out        = dtype == DType::fp8_e4m3 ? DType::bf16 : dtype;
  constexpr int64_t kAll = kSide * kSide, kPart = kAll * sizeof(float);  // room for the largest type
  const LtMatmul product(dtype, out, /*tf32=*/dtype == DType::fp32, kSide, kSide, kSide);
  if (bench.memory_bytes() < 3 * kPart + static_cast<int64_t>(product.workspace_bytes()))
    throw SystemError("this GPU has too little memory for three matrices of 8192 x 8192");
  std::byte *const a = bench.memory(), *const b = a + kPart, *const d = b + kPart;
  bench.device().fill_normal(a, kAll, dtype, 2, 0, 1);
  bench.device().fill_normal(b, kAll, dtype, 3, 0, 1);
  return bench.measure(again([&, a, b, d] {
    product.run(a, b, d, d + kPart, bench.stream());
    return 2.0 * static_cast<double>(kAll) * static_cast<double>(kSide);
  }));
}

// ---- latency

GpuLatency measure_latency(const Bench& bench, GpuLevel level) {
  const bool l2    = level == GpuLevel::l2;
  const auto bytes = static_cast<int64_t>(
      bench.kernels().make_cycle(bench.memory(),
                                 l2 ? std::min(kLatencyL2Bytes, bench.facts().l2_bytes / 4)
                                    : std::min(kLatencyBytes, bench.memory_bytes()),
                                 bench.stream()));
  const int64_t lines = bytes / kGpuLine;
  int64_t line        = 0;
  const Enqueue loads = [&](int64_t n) {
    line = next_line(line + 1, lines);  // another start: lines of the last trial may still be in L2
    return bench.kernels().chase(bench.memory() + line * kGpuLine, 256 * n, bench.sink(), bench.stream());
  };
  if (l2) bench.seconds(loads, lines / 256);  // loads the whole cycle into L2
  std::vector<double> ns;
  for (const double rate : bench.rates(loads, bench.units_for(kTrialS, loads))) ns.push_back(1e9 / rate);
  return {.level = level, .bytes = bytes, .ns = summarise(ns, Better::lower)};
}

Measured measure_launch(const Bench& bench) {
  constexpr int kLaunches = 500;  // fewer than the launch queue holds, so none blocks
  std::vector<double> ns;
  for (int trial = 0; trial <= kTrials; ++trial) {
    bench.device().synchronize();
    const double start = now_s();
    for (int i = 0; i < kLaunches; ++i) bench.kernels().nothing(bench.stream());
    if (trial > 0) ns.push_back(1e9 * (now_s() - start) / kLaunches);  // the first loads the kernel
  }
  bench.device().synchronize();
  return summarise(ns, Better::lower);
}

Measured measure_launch_to_finish(const Bench& bench) {
  std::vector<double> ns;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> each;
    for (int i = 0; i < 100; ++i) {
      const double start = now_s();
      bench.kernels().nothing(bench.stream());
      FATHOM_CUDA(cudaStreamSynchronize(bench.stream()));
      each.push_back(1e9 * (now_s() - start));
    }
    ns.push_back(measure::median(each));
  }
  return summarise(ns, Better::lower);
}

Measured measure_graph(const Bench& bench) {
  constexpr int kNodes = 1000;
  const CudaGraph graph(bench.stream(), [&] {
    for (int i = 0; i < kNodes; ++i) bench.kernels().nothing(bench.stream());
  });
  const Enqueue launches = again([&] {
    graph.launch(bench.stream());
    return static_cast<double>(kNodes);
  });
  std::vector<double> ns;
  for (const double rate : bench.rates(launches, bench.units_for(kTrialS, launches)))
    ns.push_back(1e9 / rate);
  return summarise(ns, Better::lower);
}

// ---- the link between host and GPU

class PinnedMemory {
 public:
  explicit PinnedMemory(int64_t bytes) {
    FATHOM_CUDA(cudaHostAlloc(&data_, static_cast<size_t>(bytes), cudaHostAllocDefault));
  }
  ~PinnedMemory() { (void)cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&)            = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

LinkRate measure_link(const Bench& bench, LinkDirection direction, bool pinned, void* host) {
  const bool up      = direction == LinkDirection::to_gpu;
  const Enqueue copy = again([&] {
    FATHOM_CUDA(cudaMemcpyAsync(up ? bench.memory() : host, up ? host : bench.memory(), kLinkBytes,
                                up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, bench.stream()));
    return static_cast<double>(kLinkBytes);
  });
  std::vector<double> rates;
  if (pinned) {
    rates = bench.rates(copy, bench.units_for(kTrialS, copy));
  } else {
    // The host copies through the driver's staging buffer, so host time is measured.
    for (int trial = 0; trial <= kTrials; ++trial) {
      const double start = now_s();
      copy(1);
      FATHOM_CUDA(cudaStreamSynchronize(bench.stream()));
      if (trial > 0) rates.push_back(static_cast<double>(kLinkBytes) / (now_s() - start));
    }
  }
  return {.direction   = direction,
          .pinned      = pinned,
          .bytes       = kLinkBytes,
          .bytes_per_s = summarise(rates, Better::higher)};
}

int other_processes(const GpuFacts& facts) {
  const Result<NvmlGpu> sensors = nvml_gpu(facts.uuid);
  if (!sensors) return 0;
  const auto processes = sensors->processes();
  if (!processes) return 0;
  return static_cast<int>(std::count_if(processes->begin(), processes->end(),
                                        [](const GpuProcess& process) { return process.pid != getpid(); }));
}

// A measurement that fails leaves its reason, and the others continue; a lost GPU ends them all.
template <class F>
void attempt(GpuCeilings& into, std::string what, F measure) {
  try {
    measure();
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& problem) {
    (void)cudaGetLastError();
    into.not_measured.push_back({std::move(what), problem.what()});
  }
}

constexpr DType kCudaCoreTypes[] = {DType::fp32, DType::fp64, DType::fp16, DType::bf16};
constexpr DType kTensorTypes[]   = {DType::bf16, DType::fp16, DType::fp32, DType::fp8_e4m3, DType::fp64};
constexpr DType kCublasLtTypes[] = {DType::bf16, DType::fp16, DType::fp32, DType::fp8_e4m3};

void measure_bandwidths(const Bench& bench, GpuCeilings& into) {
  constexpr std::pair<GpuLevel, Traffic> kEntries[] = {
      {GpuLevel::shared, Traffic::read}, {GpuLevel::l1, Traffic::read},  {GpuLevel::l2, Traffic::read},
      {GpuLevel::l2, Traffic::write},    {GpuLevel::l2, Traffic::copy},  {GpuLevel::dram, Traffic::read},
      {GpuLevel::dram, Traffic::write},  {GpuLevel::dram, Traffic::copy}};
  for (const auto& [level, traffic] : kEntries)
    attempt(into, fmt::format("{} {}", to_string(level), to_string(traffic)), [&] {
      const Seen seen = bench.measure(traffic_over(bench, level, traffic));
      into.bandwidths.push_back({level, traffic, working_set(bench, level), seen.value, seen.during});
    });
}

void measure_peaks(const Bench& bench, GpuCeilings& into) {
  const auto add = [&](DType dtype, GpuUnit unit, const Seen& seen) {
    into.peaks.push_back({dtype, unit, seen.value, seen.during});
  };
  const auto named = [](DType dtype, GpuUnit unit) {
    return fmt::format("{} by {}", traits(dtype).name, to_string(unit));
  };
  for (const DType dtype : kCudaCoreTypes)
    attempt(into, named(dtype, GpuUnit::cuda_cores),
            [&] { add(dtype, GpuUnit::cuda_cores, measure_flops(bench, dtype, GpuUnit::cuda_cores)); });
  for (const DType dtype : kTensorTypes)
    attempt(into, named(dtype, GpuUnit::tensor_cores),
            [&] { add(dtype, GpuUnit::tensor_cores, measure_flops(bench, dtype, GpuUnit::tensor_cores)); });
  for (const DType dtype : kCublasLtTypes)
    attempt(into, named(dtype, GpuUnit::cublaslt),
            [&] { add(dtype, GpuUnit::cublaslt, measure_cublaslt(bench, dtype)); });
}

void measure_latencies(const Bench& bench, GpuCeilings& into) {
  for (const GpuLevel level : {GpuLevel::l2, GpuLevel::dram})
    attempt(into, fmt::format("load latency of {}", to_string(level)),
            [&] { into.load_latencies.push_back(measure_latency(bench, level)); });
  attempt(into, "launch", [&] { into.launch_ns = measure_launch(bench); });
  attempt(into, "launch to completion", [&] { into.launch_to_finish_ns = measure_launch_to_finish(bench); });
  attempt(into, "graph of launches", [&] { into.graph_node_ns = measure_graph(bench); });
}

void measure_links(const Bench& bench, GpuCeilings& into) {
  attempt(into, "page-locked copies", [&] {
    const PinnedMemory host(kLinkBytes);
    for (const LinkDirection direction : kLinkDirections)
      into.links.push_back(measure_link(bench, direction, true, host.data()));
  });
  attempt(into, "pageable copies", [&] {
    std::vector<std::byte> host(kLinkBytes, std::byte{1});
    for (const LinkDirection direction : kLinkDirections)
      into.links.push_back(measure_link(bench, direction, false, host.data()));
  });
}

}  // namespace

GpuCeilings measure_gpu_ceilings(const ProgressLine& progress, DeviceId device) {
  const GpuFacts& facts = facts_of(device);
  const double start    = now_s();
  GpuCeilings ceilings{
      .name = facts.name, .l2_bytes = facts.l2_bytes, .other_processes = other_processes(facts)};
  progress(fmt::format("{}: the clock settles", facts.name));
  {
    const Bench bench(device);
    ceilings.clock_settled = settle_clock(bench);
    progress("GPU memory and cache bandwidth");
    measure_bandwidths(bench, ceilings);
    progress("GPU load and launch latency");
    measure_latencies(bench, ceilings);
    progress("copies between host and GPU");
    measure_links(bench, ceilings);
    progress("GPU arithmetic");
    measure_peaks(bench, ceilings);  // last: it heats the GPU
  }
  if (facts.count > 1) {
    progress("copies between GPUs");
    attempt(ceilings, "copies between GPUs", [&] { ceilings.peers = measure_peer_copies(facts); });
  }
  ceilings.seconds     = now_s() - start;
  ceilings.measured_at = utc_now();
  return ceilings;
}

Measured measure_gpu_bandwidth(GpuLevel level, Traffic traffic, DeviceId device) {
  const Bench bench(device);
  settle_clock(bench);
  return bench.measure(traffic_over(bench, level, traffic)).value;
}

Measured measure_gpu_flops(DType dtype, bool tensor, DeviceId device) {
  const Bench bench(device);
  settle_clock(bench);
  return measure_flops(bench, dtype, tensor ? GpuUnit::tensor_cores : GpuUnit::cuda_cores).value;
}

}  // namespace fathom::machine
