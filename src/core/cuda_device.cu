// The GPU as a Device: memory, copies through page-locked staging, fills, checksums and the cache flush.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/arena.h"
#include "core/cuda.h"
#include "core/device.h"
#include "core/philox.cuh"

namespace fathom {

namespace {

// After these the context is gone (CUDA Runtime API, cudaError_t: "must be terminated and relaunched").
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void cuda_failed(const char* call, cudaError_t error, const char* file, int line) {
  const std::string text = std::string(call) + ": " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error) + " (" + file + ":" + std::to_string(line) + ")";
  if (is_sticky(error)) throw DeviceLost(text);
  throw SystemError(text);
}

namespace {

constexpr int kBlock            = 256;
constexpr int64_t kStagingBytes = int64_t{32} << 20;
constexpr uint32_t kUseOnDevice = 2;  // core/rng.cpp numbers the uses of a seed
constexpr unsigned kLargestGrid = 1u << 20;

__device__ double unit(uint32_t high, uint32_t low) {  // [0, 1) on a grid of 2^-52
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 12) * 0x1p-52;
}
__device__ float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

struct MakeUniform {
  double lo, width;
  template <class T>
  __device__ void operator()(uint4 w, T* out) const {  // two elements
    if constexpr (std::is_same_v<T, double>) {
      out[0] = lo + width * unit(w.y, w.x);
      out[1] = lo + width * unit(w.w, w.z);
    } else if constexpr (std::is_integral_v<T>) {
      const auto count = static_cast<uint64_t>(width);
      const auto first = static_cast<int64_t>(lo);
      out[0]           = static_cast<T>(
          first + static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(w.y) << 32 | w.x, count)));
      out[1] = static_cast<T>(
          first + static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(w.w) << 32 | w.z, count)));
    } else {
      out[0] = static_cast<T>(static_cast<float>(lo) + static_cast<float>(width) * unit(w.x));
      out[1] = static_cast<T>(static_cast<float>(lo) + static_cast<float>(width) * unit(w.z));
    }
  }
};

struct MakeNormal {  // Box-Muller
  double mean, deviation;
  template <class T>
  __device__ void operator()(uint4 w, T* out) const {
    if constexpr (std::is_same_v<T, double>) {
      const double radius = sqrt(-2 * log(unit(w.y, w.x) + 0x1p-53));
      double sine, cosine;
      sincospi(2 * unit(w.w, w.z), &sine, &cosine);
      out[0] = mean + deviation * radius * cosine;
      out[1] = mean + deviation * radius * sine;
    } else if constexpr (!std::is_integral_v<T>) {
      const float radius = sqrtf(-2 * logf(unit(w.x) + 0x1p-25f));
      float sine, cosine;
      sincospif(2 * unit(w.z), &sine, &cosine);
      out[0] = static_cast<T>(static_cast<float>(mean) + static_cast<float>(deviation) * radius * cosine);
      out[1] = static_cast<T>(static_cast<float>(mean) + static_cast<float>(deviation) * radius * sine);
    }
  }
};

// Elements 2 i and 2 i + 1 come from counter i, so that any grid gives the same numbers.
template <class T, class Make>
__global__ void fill_kernel(T* out, int64_t n, uint64_t seed, Make make) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; 2 * i < n; i += step) {
    T pair[2];
    make(philox(static_cast<uint64_t>(i), kUseOnDevice, seed), pair);
    out[2 * i] = pair[0];
    if (2 * i + 1 < n) out[2 * i + 1] = pair[1];
  }
}

__global__ void set_words_kernel(uint32_t* out, int64_t words, uint32_t word) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) out[i] = word;
}

__device__ uint64_t mix(uint64_t z) {  // splitmix64
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// A sum of hashes of (value, place): independent of the order in which blocks add.
__global__ void checksum_kernel(const uint8_t* data, int64_t bytes, unsigned long long* sum) {
  const int64_t words = bytes / 8, step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint64_t mine       = 0;
  for (int64_t i = first; i < words; i += step)
    mine += mix(reinterpret_cast<const uint64_t*>(data)[i] +
                0x9E3779B97F4A7C15ull * static_cast<uint64_t>(i + 1));
  if (first < bytes % 8)
    mine +=
        mix(data[words * 8 + first] + 0xD1B54A32D192ED03ull * static_cast<uint64_t>(words * 8 + first + 1));
  for (int lane = 16; lane > 0; lane /= 2) mine += __shfl_xor_sync(~0u, mine, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(mine));
}

__global__ void read_kernel(const uint4* data, int64_t vectors, uint32_t* sink) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t all       = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const uint4 v = __ldcg(data + i);
    all ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (all == 0x5EED5EEDu) *sink = all;  // never the case with the pattern that lies there; keeps the loads
}

unsigned grid_for(int64_t items) {
  return static_cast<unsigned>(
      std::min<int64_t>(kLargestGrid, std::max<int64_t>(1, (items + kBlock - 1) / kBlock)));
}

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    FATHOM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    FATHOM_CUDA(cudaMallocHost(&staging_, kStagingBytes));
    FATHOM_CUDA(cudaMalloc(&sum_, sizeof *sum_));
    int device = 0, l2 = 0;
    FATHOM_CUDA(cudaGetDevice(&device));
    FATHOM_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device));
    set_aside_l2(0);
    flush_bytes_ = 3 * int64_t{l2};
    FATHOM_CUDA(cudaMalloc(&flush_, static_cast<size_t>(flush_bytes_)));
    set_words(flush_, flush_bytes_, 0x01010101u);
  }

  void* allocate(int64_t bytes) override {
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
  // Errors of a lost context show elsewhere; here nobody could be told.
  void release(void* memory) noexcept override { (void)cudaFree(memory); }
  void pin(void* memory, int64_t bytes) override {
    FATHOM_CUDA(cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterMapped));
  }
  void unpin(void* memory) noexcept override { (void)cudaHostUnregister(memory); }

  void to_device(void* to, const void* from, int64_t bytes) override {
    for (int64_t done = 0; done < bytes; done += kStagingBytes) {
      const auto count = static_cast<size_t>(std::min(kStagingBytes, bytes - done));
      std::memcpy(staging_, static_cast<const std::byte*>(from) + done, count);
      FATHOM_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staging_, count, cudaMemcpyHostToDevice,
                                  stream_));
      FATHOM_CUDA(cudaStreamSynchronize(stream_));
    }
  }
  void to_host(void* to, const void* from, int64_t bytes) override {
    cudaPointerAttributes attributes = {};
    if (bytes > kStagingBytes && cudaPointerGetAttributes(&attributes, to) == cudaSuccess &&
        attributes.type == cudaMemoryTypeHost) {
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

  void set_words(void* to, int64_t bytes, uint32_t word) override {
    const int64_t words = bytes / 4;
    if (words > 0) {
      set_words_kernel<<<grid_for(words), kBlock, 0, stream_>>>(static_cast<uint32_t*>(to), words, word);
      FATHOM_LAUNCHED();
    }
    if (bytes % 4 != 0)
      FATHOM_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + words * 4, &word,
                                  static_cast<size_t>(bytes % 4), cudaMemcpyHostToDevice, stream_));
    synchronize();
  }

  void fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi) override {
    fill(out, n, type, seed, MakeUniform{lo, hi - lo});
  }
  void fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean, double deviation) override {
    fill(out, n, type, seed, MakeNormal{mean, deviation});
  }

  uint64_t checksum(const void* data, int64_t bytes) override {
    FATHOM_CUDA(cudaMemsetAsync(sum_, 0, sizeof *sum_, stream_));
    if (bytes > 0) {
      const unsigned grid = std::min(grid_for(bytes / 8), 4096u);
      checksum_kernel<<<grid, kBlock, 0, stream_>>>(static_cast<const uint8_t*>(data), bytes, sum_);
      FATHOM_LAUNCHED();
    }
    uint64_t sum = 0;
    to_host(&sum, sum_, sizeof sum);
    return sum ^ static_cast<uint64_t>(bytes);
  }

  void flush_caches() override {
    FATHOM_CUDA(cudaCtxResetPersistingL2Cache());
    read_kernel<<<1024, kBlock, 0, stream_>>>(static_cast<const uint4*>(flush_), flush_bytes_ / 16,
                                              reinterpret_cast<uint32_t*>(sum_));
    FATHOM_LAUNCHED();
  }

  void enqueue_to_device(void* to, const void* from, int64_t bytes) override {
    FATHOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_));
  }

  void set_aside_l2(int64_t bytes) override {
    int most = 0, device = 0;
    FATHOM_CUDA(cudaGetDevice(&device));
    FATHOM_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, device));
    if (bytes > most)
      throw SystemError(std::to_string(bytes) +
                        " bytes of L2 are to persist, and this GPU sets aside at most " +
                        std::to_string(most));
    FATHOM_CUDA(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, static_cast<size_t>(bytes)));
    FATHOM_CUDA(
        cudaDeviceGetLimit(&set_aside_, cudaLimitPersistingL2CacheSize));  // rounded to what it can divide
  }
  std::optional<std::string> left_behind() override {
    std::optional<std::string> found;
    size_t persisting = 0;
    FATHOM_CUDA(cudaDeviceGetLimit(&persisting, cudaLimitPersistingL2CacheSize));
    if (persisting != set_aside_) {
      found = std::to_string(persisting) + " bytes of L2 are set aside for persisting lines";
      FATHOM_CUDA(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, set_aside_));
    }
    cudaStreamAttrValue value = {};
    FATHOM_CUDA(cudaStreamGetAttribute(stream_, cudaLaunchAttributeAccessPolicyWindow, &value));
    if (value.accessPolicyWindow.num_bytes != 0) {
      found                    = "an access policy window on the harness's stream";
      value.accessPolicyWindow = {};
      FATHOM_CUDA(cudaStreamSetAttribute(stream_, cudaLaunchAttributeAccessPolicyWindow, &value));
    }
    if (found || set_aside_ > 0) FATHOM_CUDA(cudaCtxResetPersistingL2Cache());
    return found;
  }

  StreamRef stream() override { return stream_; }
  void synchronize() override { FATHOM_CUDA(cudaDeviceSynchronize()); }

 private:
  template <class Make>
  void fill(void* out, int64_t n, DType type, uint64_t seed, Make make) {
    if (n == 0) return;
    const auto as = [&]<class T>(T*) {
      fill_kernel<<<grid_for((n + 1) / 2), kBlock, 0, stream_>>>(static_cast<T*>(out), n, seed, make);
      FATHOM_LAUNCHED();
    };
    switch (type) {
      case DType::fp64:
        as(static_cast<double*>(nullptr));
        break;
      case DType::fp32:
        as(static_cast<float*>(nullptr));
        break;
      case DType::bf16:
        as(static_cast<bf16*>(nullptr));
        break;
      case DType::fp16:
        as(static_cast<fp16*>(nullptr));
        break;
      case DType::fp8_e4m3:
        as(static_cast<fp8_e4m3*>(nullptr));
        break;
      case DType::fp8_e5m2:
        as(static_cast<fp8_e5m2*>(nullptr));
        break;
      case DType::int64:
        as(static_cast<int64_t*>(nullptr));
        break;
      case DType::int32:
        as(static_cast<int32_t*>(nullptr));
        break;
      case DType::uint32:
        as(static_cast<uint32_t*>(nullptr));
        break;
      case DType::int8:
        as(static_cast<int8_t*>(nullptr));
        break;
      case DType::uint8:
        as(static_cast<uint8_t*>(nullptr));
        break;
      default:
        FATHOM_EXPECT(false, std::string("no fill on the device for ") + traits(type).name);
    }
    synchronize();
  }

  cudaStream_t stream_     = nullptr;
  void* staging_           = nullptr;
  unsigned long long* sum_ = nullptr;
  void* flush_             = nullptr;
  int64_t flush_bytes_     = 0;
  size_t set_aside_        = 0;
};

// Opened once, and never closed: at exit the driver takes everything back.
const std::pair<Device*, std::string>& opened() {
  static const std::pair<Device*, std::string> device = []() -> std::pair<Device*, std::string> {
    int count               = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return {nullptr, std::string("no GPU: ") + cudaGetErrorString(error)};
    if (count == 0) return {nullptr, "no GPU is visible"};
    try {
      return {new CudaDevice, ""};
    } catch (const std::exception& e) {
      return {nullptr, e.what()};
    }
  }();
  return device;
}

}  // namespace

Device* cuda_device() { return opened().first; }
std::string why_no_cuda_device() { return opened().second; }

}  // namespace fathom
