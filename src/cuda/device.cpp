#include "cuda/device.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/checksum.h"
#include "cuda/device_guard.h"
#include "cuda/device_memory.h"
#include "cuda/device_name.h"
#include "cuda/fill.h"
#include "cuda/flush_l2.h"
#include "cuda/persisting_l2.h"

namespace fathom {
namespace {

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Made while its GPU is current.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(DeviceId id) : id_(id) {
    FATHOM_CUDA(cudaMalloc(&sum_, sizeof *sum_));
    FATHOM_CUDA(cudaDeviceSynchronize());
  }

  DeviceId id() const override { return id_; }
  void make_current() override { FATHOM_CUDA(cudaSetDevice(id_.ordinal)); }

  void* allocate(int64_t bytes) override {
    const DeviceGuard current(id_);
    return memory_.allocate(bytes);
  }
  void release(void* memory) noexcept override { memory_.release(memory); }
  std::string ipc_handle(const void* allocation) override {
    const DeviceGuard current(id_);
    cudaIpcMemHandle_t handle;
    FATHOM_CUDA(cudaIpcGetMemHandle(&handle, const_cast<void*>(allocation)));
    return {handle.reserved, sizeof handle.reserved};
  }
  void pin(void* memory, int64_t bytes) override {
    const DeviceGuard current(id_);
    memory_.pin(memory, bytes);
  }
  void unpin(void* memory) noexcept override { memory_.unpin(memory); }
  void to_device(void* to, const void* from, int64_t bytes) override {
    const DeviceGuard current(id_);
    memory_.to_device(to, from, bytes);
  }
  void to_host(void* to, const void* from, int64_t bytes) override {
    const DeviceGuard current(id_);
    memory_.to_host(to, from, bytes);
  }
  void enqueue_to_device(void* to, const void* from, int64_t bytes) override {
    const DeviceGuard current(id_);
    FATHOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_));
  }

  StreamRef stream() override { return stream_; }
  void synchronize() override {
    const DeviceGuard current(id_);
    FATHOM_CUDA(cudaDeviceSynchronize());
  }

  void set_words(void* to, int64_t bytes, uint32_t word) override {
    const DeviceGuard current(id_);
    enqueue_set_words(to, bytes, word, stream_);
    FATHOM_CUDA(cudaDeviceSynchronize());
  }
  void fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi) override {
    const DeviceGuard current(id_);
    enqueue_fill_uniform(out, n, type, seed, lo, hi, stream_);
    FATHOM_CUDA(cudaDeviceSynchronize());
  }
  void fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean, double deviation) override {
    const DeviceGuard current(id_);
    enqueue_fill_normal(out, n, type, seed, mean, deviation, stream_);
    FATHOM_CUDA(cudaDeviceSynchronize());
  }
  uint64_t checksum(const void* data, int64_t bytes) override {
    const DeviceGuard current(id_);
    FATHOM_CUDA(cudaMemsetAsync(sum_, 0, sizeof *sum_, stream_));
    enqueue_checksum(data, bytes, sum_, stream_);
    uint64_t sum = 0;
    memory_.to_host(&sum, sum_, sizeof sum);
    return sum ^ static_cast<uint64_t>(bytes);
  }

  void flush_l2() override {
    const DeviceGuard current(id_);
    l2_flush_.enqueue(stream_);
  }
  void set_aside_l2(int64_t bytes) override {
    const DeviceGuard current(id_);
    persisting_l2_.set_aside(bytes);
  }
  std::optional<std::string> restore_l2() override {
    const DeviceGuard current(id_);
    return persisting_l2_.restore(stream_);
  }

 private:
  const DeviceId id_;
  const cudaStream_t stream_ = make_stream();
  DeviceMemory memory_{stream_};
  unsigned long long* sum_ = nullptr;
  PersistingL2 persisting_l2_;
  L2Flush l2_flush_{stream_};
};

struct Slot {
  std::once_flag once;
  std::unique_ptr<Device> device;
  std::string why_not;
};

void open(Slot& slot, DeviceId id) {
  int count               = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    slot.why_not = std::string("no GPU: ") + cudaGetErrorString(error);
  else if (count == 0)
    slot.why_not = "no GPU is visible";
  else if (id.ordinal >= count)
    slot.why_not = no_such_device(id, count);
  if (!slot.why_not.empty()) return;
  try {
    const DeviceGuard current(id);
    slot.device = std::make_unique<CudaDevice>(id);
  } catch (const std::exception& problem) {
    slot.why_not = problem.what();
  }
}

// Never freed: at exit the driver takes everything back.
const Slot& slot_of(DeviceId id) {
  FATHOM_EXPECT(id.ordinal >= 0 && id.ordinal < kMaxGpus, to_string(id) + " is no device");
  static auto& slots = *new std::array<Slot, kMaxGpus>;
  Slot& slot         = slots[static_cast<size_t>(id.ordinal)];
  std::call_once(slot.once, open, slot, id);
  return slot;
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

Device* find_device(DeviceId id) { return slot_of(id).device.get(); }
std::string why_no_device(DeviceId id) { return slot_of(id).why_not; }

Device& device(DeviceId id) {
  const Slot& slot = slot_of(id);
  if (!slot.device) throw SystemError(slot.why_not);
  return *slot.device;
}

}  // namespace fathom
