#include "cuda/fill.h"

#include <string>
#include <type_traits>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/grid.cuh"
#include "cuda/philox.cuh"

namespace fathom {
namespace {

constexpr uint32_t kUseOnDevice = 2;  // core/rng.cpp numbers the uses of a seed

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

// Elements 2 i and 2 i + 1 come from counter i, so the numbers do not depend on the grid.
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

template <class Make>
void enqueue_fill(void* out, int64_t n, DType type, uint64_t seed, Make make, StreamRef stream) {
  if (n == 0) return;
  const auto as = [&]<class T>(T*) {
    fill_kernel<<<grid_stride_blocks((n + 1) / 2), kGridStrideBlock, 0, stream>>>(static_cast<T*>(out), n,
                                                                                  seed, make);
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
}

}  // namespace

void enqueue_set_words(void* to, int64_t bytes, uint32_t word, StreamRef stream) {
  const int64_t words = bytes / 4;
  if (words > 0) {
    set_words_kernel<<<grid_stride_blocks(words), kGridStrideBlock, 0, stream>>>(static_cast<uint32_t*>(to),
                                                                                 words, word);
    FATHOM_LAUNCHED();
  }
  // From pageable memory: `word` has been read when this returns.
  if (bytes % 4 != 0)
    FATHOM_CUDA(cudaMemcpyAsync(static_cast<char*>(to) + words * 4, &word, static_cast<size_t>(bytes % 4),
                                cudaMemcpyHostToDevice, stream));
}

void enqueue_fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi,
                          StreamRef stream) {
  enqueue_fill(out, n, type, seed, MakeUniform{lo, hi - lo}, stream);
}
void enqueue_fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean, double deviation,
                         StreamRef stream) {
  enqueue_fill(out, n, type, seed, MakeNormal{mean, deviation}, stream);
}

}  // namespace fathom
