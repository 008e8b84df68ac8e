#include "cuda/device_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/expect.h"
#include "cuda/check.h"

namespace fathom {
namespace {

constexpr int64_t kStagingBytes = int64_t{32} << 20;

bool is_pinned(const void* host) {
  cudaPointerAttributes attributes = {};
  return cudaPointerGetAttributes(&attributes, host) == cudaSuccess && attributes.type == cudaMemoryTypeHost;
}

}  // namespace

DeviceMemory::DeviceMemory(StreamRef stream) : stream_(stream) {
  FATHOM_CUDA(cudaMallocHost(&staging_, kStagingBytes));
}
DeviceMemory::~DeviceMemory() { (void)cudaFreeHost(staging_); }

void* DeviceMemory::allocate(int64_t bytes) {
  size_t free = 0, total = 0;
  FATHOM_CUDA(cudaMemGetInfo(&free, &total));
  void* memory            = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw NotEnoughMemory(bytes, static_cast<int64_t>(free));
  }
  FATHOM_CUDA(error);
  return memory;
}

// The error of a lost context shows in the next call that may throw. The address says which GPU.
void DeviceMemory::release(void* memory) noexcept { (void)cudaFree(memory); }

void DeviceMemory::pin(void* memory, int64_t bytes) {
  FATHOM_CUDA(cudaHostRegister(memory, static_cast<size_t>(bytes),
                               cudaHostRegisterMapped | cudaHostRegisterPortable));
}
void DeviceMemory::unpin(void* memory) noexcept { (void)cudaHostUnregister(memory); }

void DeviceMemory::to_device(void* to, const void* from, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += kStagingBytes) {
    const auto count = static_cast<size_t>(std::min(kStagingBytes, bytes - done));
    std::memcpy(staging_, static_cast<const std::byte*>(from) + done, count);
    FATHOM_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staging_, count, cudaMemcpyHostToDevice,
                                stream_));
    FATHOM_CUDA(cudaStreamSynchronize(stream_));
  }
}

void DeviceMemory::to_host(void* to, const void* from, int64_t bytes) {
  if (bytes > kStagingBytes && is_pinned(to)) {
    FATHOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_));
    FATHOM_CUDA(cudaStreamSynchronize(stream_));
    return;
  }
  for (int64_t done = 0; done < bytes; done += kStagingBytes) {
    const auto count = static_cast<size_t>(std::min(kStagingBytes, bytes - done));
    FATHOM_CUDA(cudaMemcpyAsync(staging_, static_cast<const std::byte*>(from) + done, count,
                                cudaMemcpyDeviceToHost, stream_));
    FATHOM_CUDA(cudaStreamSynchronize(stream_));
    std::memcpy(static_cast<std::byte*>(to) + done, staging_, count);
  }
}

}  // namespace fathom
