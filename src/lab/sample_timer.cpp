#include "lab/sample_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/cpu_affinity.h"
#include "cuda/device.h"
#include "lab/devices.h"
#include "lab/python_process.h"
#include "machine/gpu.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/nvml.h"
#include "measure/clock.h"
#include "measure/gpu_clock.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

double wall_ns() { return static_cast<double>(measure::now_ns(measure::Clock::wall)); }
double cpu_ns() { return static_cast<double>(measure::now_ns(measure::Clock::thread_cpu)); }

// By the clock of the process that makes the calls.
SampleTimer::Reading time_in_python(PythonProcess& process, const std::function<void()>& calls, bool held) {
  PythonProcess::Timing timing;
  SampleTimer::Reading reading{.caught = guarded([&] { timing = process.time(calls, held); })};
  reading.clock_ns = reading.wall_ns = timing.ns;
  if (timing.waited) {
    reading.doubtful = true;
    reading.caught   = Caught{Outcome::invalid, "declared_sync",
                            "the calls of a sample wait for the GPU, which waits until they are enqueued"};
  }
  return reading;
}

class HostTimer final : public SampleTimer {
 public:
  HostTimer(Clock clock, std::vector<int> cpus) : clock_(clock), cpus_(std::move(cpus)) {}

  Reading time(const VariantInfo& variant, ThreadPool& pool, const std::function<void()>& calls,
               bool first) override {
    if (variant.python) return time_in_python(*variant.python, calls, !first);
    // A library starts its own threads at its first calls, on the CPUs that this thread may use then.
    std::optional<ScopedAffinity> free;
    if (variant.kind == Kind::library && variant.threads != 1) free.emplace(cpus_);
    wait_until_quiet();
    // Wakes the workers: waking is the subject of an experiment of its own, not part of every other.
    if (pool.threads() > 1) pool.run([](int) {});

    const ThreadAudit before = ThreadAudit::now();
    const double cpu0 = cpu_ns(), wall0 = wall_ns();
    const auto thrown  = guarded(calls);
    const double wall1 = wall_ns(), cpu1 = cpu_ns();
    const ThreadAudit after = ThreadAudit::now();
    Reading reading{.clock_ns = clock_ == Clock::cpu ? cpu1 - cpu0 : wall1 - wall0,
                    .wall_ns  = wall1 - wall0,
                    .caught   = thrown ? thrown : audit_threads(variant, before, after)};
    if (!reading.caught && others_helped(variant, before, after)) {
      reading.doubtful = true;
      reading.caught =
          Caught{Outcome::invalid, "thread_audit",
                 fmt::format("declared 1 thread, but others used {:.0f} % of its time, again and again",
                             100.0 * static_cast<double>(after.others_cpu_ns - before.others_cpu_ns) /
                                 static_cast<double>(after.wall_ns - before.wall_ns))};
    }
    return reading;
  }

  // A multiply-add chain of known speed. Work, not waiting, so that a busy neighbour slows it like the calls.
  void extra_work(double ns) override {
    static const double ns_per_step = [] {
      constexpr int64_t kSteps = 2'000'000;
      const double start       = cpu_ns();
      multiply_add(kSteps);
      return (cpu_ns() - start) / static_cast<double>(kSteps);
    }();
    multiply_add(static_cast<int64_t>(ns / ns_per_step));
  }
  void settle(const VariantInfo&, const std::function<void()>&) override {}
  void finish() override {}

  double epoch_ns() const override { return 1e6; }
  int64_t most_calls() const override { return INT64_MAX; }
  StreamRef stream() const override { return nullptr; }

 private:
  static void multiply_add(int64_t steps) {
    double x = 1;
    for (int64_t i = 0; i < steps; ++i) x = x * 0.999999 + 1e-9;
    static std::atomic<double> sink;
    sink = x;
  }

  Clock clock_;
  std::vector<int> cpus_;
};

// docs/method.md, "On a GPU".
class GpuTimer final : public SampleTimer {
 public:
  explicit GpuTimer(Device& device) : device_(device), clock_(measure::gpu_clock(device)) {
    if (const auto found = machine::nvml_gpu(machine::gpu(device.id())->uuid)) nvml_ = *found;
  }

  ~GpuTimer() override {
    if (sink_) device_.release(sink_);
  }

  Reading time(const VariantInfo& variant, ThreadPool&, const std::function<void()>& calls,
               bool first) override {
    if (variant.python) {
      device_.synchronize();
      return time_in_python(*variant.python, calls, !first);
    }
    measure::GpuClock::Sample sample;
    if (variant.persisting_l2 > 0) device_.set_aside_l2(variant.persisting_l2);
    const auto thrown = guarded([&] { sample = clock_->time(calls, !first && !variant.syncs); });
    if (thrown) {
      device_.set_aside_l2(0);
      return {.caught = thrown};
    }
    if (sample.clock_hz > 0) clocks_hz_.push_back(sample.clock_hz);
    Reading reading{
        .clock_ns = sample.ns, .wall_ns = sample.ns, .cycles = sample.ns * 1e-9 * sample.clock_hz};
    const auto left = device_.restore_l2();
    if (sample.waited) {
      reading.doubtful = true;  // or this thread had no CPU for as long as the GPU is held
      reading.caught   = Caught{Outcome::invalid, "declared_sync",
                              "the call waits for the GPU: declare .syncs, or its time is the host's"};
    } else if (left) {
      reading.caught = Caught{Outcome::invalid, "l2_persistence", "after the call: " + *left};
    } else if (sample.late_ns > std::max(20e3, 0.05 * sample.ns)) {
      // After the last event on the harness's stream the whole device must be idle.
      reading.doubtful = true;
      reading.caught =
          Caught{Outcome::invalid, "all_streams",
                 fmt::format("the GPU went on for {:.0f} us after the call's last event: work on another "
                             "stream that the harness's stream does not wait for",
                             sample.late_ns / 1e3)};
    }
    if (variant.persisting_l2 > 0) device_.set_aside_l2(0);
    return reading;
  }

  void extra_work(double ns) override {
    const machine::GpuKernels& kernels = *machine::gpu_kernels();
    if (!sink_) sink_ = device_.allocate(1 << 20);
    if (ns_per_step_ == 0) {
      constexpr int64_t kSteps = 20'000;
      for (int pass = 0; pass < 2; ++pass)
        ns_per_step_ =
            clock_->time([&] { kernels.fma(DType::fp32, kSteps, sink_, device_.stream()); }, pass > 0).ns /
            kSteps;
    }
    kernels.fma(DType::fp32, std::max<int64_t>(1, static_cast<int64_t>(ns / ns_per_step_)), sink_,
                device_.stream());
  }

  // An idle GPU runs at a fraction of its clock. At least three calls and 300 ms, until five windows of 5 ms
  // agree within 1 %, and at most 3 s.
  void settle(const VariantInfo& variant, const std::function<void()>& call) override {
    std::vector<double> windows;
    const double began = wall_ns();
    for (int calls = 0;; ++calls) {
      const double start = wall_ns();
      double hz          = 0;
      for (bool first = true; wall_ns() - start < 5e6; first = false)
        hz = clock_->time(call, calls > 0 && !first && !variant.syncs).clock_hz;
      if (hz > 0) windows.push_back(hz);
      const double elapsed = wall_ns() - began;
      if (elapsed > 3e9) return;
      if (elapsed < 300e6 || calls < 3 || windows.size() < 5) continue;
      const auto [low, high] = std::minmax_element(windows.end() - 5, windows.end());
      if (*high - *low < 0.01 * *high) return;
    }
  }
  void as_in_sample(const VariantInfo& variant, const std::function<void()>& untimed) override {
    if (variant.persisting_l2 > 0) device_.set_aside_l2(variant.persisting_l2);
    untimed();  // what it throws ends the process, and with it the device's state
    if (variant.persisting_l2 > 0) device_.set_aside_l2(0);
  }
  void finish() override {
    device_.synchronize();
    (void)device_.restore_l2();  // timed samples report it
  }

  double epoch_ns() const override { return 1e5; }
  // Each call's launches wait in a queue of 1,024 behind the held GPU.
  int64_t most_calls() const override { return 64; }
  StreamRef stream() const override { return device_.stream(); }

  bool throttled() override {
    if (!nvml_) return false;
    const machine::GpuSensors now = nvml_->sensors();
    if (now.power_w) power_w_.push_back(*now.power_w);
    if (now.temperature_c) temperature_c_.push_back(*now.temperature_c);
    if (!now.clock_event_reasons) return false;
    power_capped_ += machine::is_power_capped(*now.clock_event_reasons);
    return machine::is_throttled(*now.clock_event_reasons);
  }

  std::map<std::string, double> telemetry() const override {
    std::map<std::string, double> seen;
    if (!clocks_hz_.empty()) {
      seen["sm_clock_mhz"] = measure::median(clocks_hz_) * 1e-6;
      // The median of the last quarter over that of the first: the drift of the clock.
      const auto quarter = static_cast<int64_t>(clocks_hz_.size() / 4);
      if (quarter > 0) {
        const double first = measure::median(std::vector(clocks_hz_.begin(), clocks_hz_.begin() + quarter));
        const double last  = measure::median(std::vector(clocks_hz_.end() - quarter, clocks_hz_.end()));
        seen["sm_clock_drift"] = last / first - 1;
      }
    }
    if (!power_w_.empty()) seen["power_w"] = measure::median(power_w_);
    if (!temperature_c_.empty()) seen["temperature_c"] = measure::median(temperature_c_);
    if (power_capped_ > 0) seen["power_capped_rounds"] = static_cast<double>(power_capped_);
    return seen;
  }

 private:
  Device& device_;
  std::unique_ptr<measure::GpuClock> clock_;
  std::optional<machine::NvmlGpu> nvml_;
  std::vector<double> clocks_hz_, power_w_, temperature_c_;
  int64_t power_capped_ = 0;
  void* sink_           = nullptr;
  double ns_per_step_   = 0;
};

}  // namespace

std::unique_ptr<SampleTimer> make_sample_timer(const ExperimentInfo& experiment,
                                               const std::vector<int>& cpus) {
  if (experiment.backend == Backend::cuda)
    if (Device* device = device_of(experiment)) return std::make_unique<GpuTimer>(*device);
  return std::make_unique<HostTimer>(experiment.clock, cpus);
}

}  // namespace fathom::lab
