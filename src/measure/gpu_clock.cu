#include "measure/gpu_clock.h"

#include <chrono>
#include <cstdint>

#include "core/cuda.h"

namespace fathom::measure {
namespace {

constexpr uint64_t kLongestHoldNs = 100'000'000;

struct Stamp {
  uint64_t ns, cycles;
  uint32_t multiprocessor;
};

struct Shared {  // page-locked, seen by host and device
  volatile int go;
  volatile int gave_up;
  Stamp stamps[2];
};

__device__ uint64_t globaltimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// Waits for the host's word; gives up rather than hang where the host waits for us.
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
  explicit CudaClock(StreamRef stream) : stream_(stream) {
    FATHOM_CUDA(cudaEventCreate(&start_));
    FATHOM_CUDA(cudaEventCreate(&end_));
    void* memory = nullptr;
    FATHOM_CUDA(cudaHostAlloc(&memory, sizeof(Shared), cudaHostAllocMapped));
    shared_ = new (memory) Shared{};
    // Loaded now: a kernel that is loaded behind a held GPU would wait for it.
    shared_->go = 1;
    hold_kernel<<<1, 1, 0, stream_>>>(shared_, kLongestHoldNs);
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[0]);
    FATHOM_LAUNCHED();
    FATHOM_CUDA(cudaDeviceSynchronize());
  }
  ~CudaClock() override {
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(end_);
    (void)cudaFreeHost(shared_);
  }

  Sample time(const std::function<void()>& enqueue, bool held) override {
    FATHOM_CUDA(cudaDeviceSynchronize());
    shared_->go         = 0;
    shared_->gave_up    = 0;
    const double before = now_ns();
    if (held) hold_kernel<<<1, 1, 0, stream_>>>(shared_, kLongestHoldNs);
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[0]);
    FATHOM_CUDA(cudaEventRecord(start_, stream_));
    try {
      enqueue();
    } catch (...) {
      shared_->go = 1;
      (void)cudaDeviceSynchronize();
      throw;
    }
    FATHOM_CUDA(cudaEventRecord(end_, stream_));
    stamp_kernel<<<1, 1, 0, stream_>>>(&shared_->stamps[1]);
    FATHOM_LAUNCHED();
    shared_->go = 1;
    FATHOM_CUDA(cudaStreamSynchronize(stream_));
    const double done = now_ns();
    FATHOM_CUDA(cudaDeviceSynchronize());
    const double idle = now_ns();

    Sample sample{.host_ns = idle - before, .late_ns = idle - done, .waited = shared_->gave_up != 0};
    float ms = 0;
    FATHOM_CUDA(cudaEventElapsedTime(&ms, start_, end_));
    sample.ns      = ms * 1e6;
    const Stamp &a = shared_->stamps[0], &b = shared_->stamps[1];
    if (a.multiprocessor == b.multiprocessor && b.ns > a.ns)
      sample.clock_hz = static_cast<double>(b.cycles - a.cycles) / static_cast<double>(b.ns - a.ns) * 1e9;
    return sample;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  Shared* shared_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuClock> gpu_clock(StreamRef stream) { return std::make_unique<CudaClock>(stream); }

}  // namespace fathom::measure
