#include "measure/gpu_clock.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/event.h"

namespace fathom::measure {
namespace {

constexpr uint64_t kLongestHoldNs = 100'000'000;

struct Stamp {
  uint64_t ns, cycles;
  uint32_t multiprocessor;
};

struct Shared {  // in page-locked memory that host and device access
  volatile int go;
  volatile int gave_up;
  Stamp stamps[2];
};

__device__ uint64_t globaltimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// Spins until the host sets `go`. Gives up after longest_ns: the host may be waiting for the GPU.
__global__ void hold_kernel(Shared* shared, uint64_t longest_ns) {
  const uint64_t start = globaltimer();
  while (!shared->go) {
    if (globaltimer() - start < longest_ns) continue;
    shared->gave_up = 1;
    break;
  }
}

__global__ void stamp_kernel(Stamp* stamp) {
  uint32_t multiprocessor;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  *stamp = {globaltimer(), static_cast<uint64_t>(clock64()), multiprocessor};
}

double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class CudaClock final : public GpuClock {
 public:
  // Made while the device is current.
  explicit CudaClock(Device& device) : device_(device), stream_(device.stream()) {
    void* memory = nullptr;
    FATHOM_CUDA(cudaHostAlloc(&memory, sizeof(Shared), cudaHostAllocMapped));
    shared_ = new (memory) Shared{};
    // Loads both kernels now: loading one while the stream is held would wait for the GPU.
    shared_->go = 1;
    hold_kernel<<<1, 1, 0, stream_>>>(shared_, kLongestHoldNs);
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[0]);
    FATHOM_LAUNCHED();
    FATHOM_CUDA(cudaDeviceSynchronize());
  }
  ~CudaClock() override { (void)cudaFreeHost(shared_); }

  Sample time(const std::function<void()>& enqueue, bool held) override {
    const DeviceGuard current(device_.id());
    FATHOM_CUDA(cudaDeviceSynchronize());
    shared_->go         = 0;
    shared_->gave_up    = 0;
    const double before = now_ns();
    if (held) hold_kernel<<<1, 1, 0, stream_>>>(shared_, kLongestHoldNs);
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[0]);
    start_.record(stream_);
    try {
      enqueue();
    } catch (...) {
      shared_->go = 1;
      (void)cudaDeviceSynchronize();
      throw;
    }
    end_.record(stream_);
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[1]);
    FATHOM_LAUNCHED();
    shared_->go = 1;
    FATHOM_CUDA(cudaStreamSynchronize(stream_));
    const double done = now_ns();
    FATHOM_CUDA(cudaDeviceSynchronize());
    const double idle = now_ns();
    // What the wait costs where nothing is left to wait for: a device with many streams, a slow host.
    FATHOM_CUDA(cudaDeviceSynchronize());
    const double wait_ns = now_ns() - idle;

    Sample sample{.host_ns = idle - before,
                  .late_ns = std::max(0.0, idle - done - wait_ns),
                  .waited  = shared_->gave_up != 0};
    sample.ns      = elapsed_ms(start_, end_) * 1e6;
    const Stamp &a = shared_->stamps[0], &b = shared_->stamps[1];
    if (a.multiprocessor == b.multiprocessor && b.ns > a.ns)
      sample.clock_hz = static_cast<double>(b.cycles - a.cycles) / static_cast<double>(b.ns - a.ns) * 1e9;
    return sample;
  }

 private:
  Device& device_;
  const StreamRef stream_;
  Event start_, end_;
  Shared* shared_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuClock> gpu_clock(Device& device) {
  const DeviceGuard current(device.id());
  return std::make_unique<CudaClock>(device);
}

}  // namespace fathom::measure
