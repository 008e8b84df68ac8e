// D = A B + D on the tensor cores, repeated over tiles in shared memory: the rate of a GEMM without loads and
// stores of global memory.
//
// flops   a warpgroup of 128 threads computes 64 x 256 x (32 bytes of k) an instruction; two share a
// multiprocessor, so
//         that one computes while the other waits for its group of 16
// limit   4096 dense bf16 flops a clock and multiprocessor on H200: 1.07 PF at 1.98 GHz, 0.5 for tf32, 2.1
// for fp8.
//         Random data draws so much power that the clock falls first; zeros do not
// bytes   16 x 10 KiB of operands a group from shared memory: 80 of its 128 bytes a clock
// idea    every type uses the same bytes: rows of 128 bytes with the 128-byte swizzle, four slices of 32
// along k. The
//         data is random, so any layout would do; this one has no bank conflicts
#include <string>

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "machine/gpu_mma_kernels.h"

namespace fathom::machine {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kThreads   = 2 * kWarpgroup;
constexpr int kN         = 256;
constexpr int kRowBytes  = 128;
constexpr int kSlices    = kRowBytes / 32;
constexpr int kGroup     = 4 * kSlices;  // instructions between two waits

// Values in [1/8, 2) with random sign and mantissa: kKeep masks the random bits, kSet sets the rest of the
// exponent.
struct Bf16 {
  static constexpr int kBytes     = 2;
  static constexpr uint32_t kKeep = 0x81FF81FF, kSet = 0x3E003E00;
};
struct Fp16 {
  static constexpr int kBytes     = 2;
  static constexpr uint32_t kKeep = 0x8FFF8FFF, kSet = 0x30003000;
};
struct Tf32 {
  static constexpr int kBytes     = 4;
  static constexpr uint32_t kKeep = 0x81FFFFFF, kSet = 0x3E000000;
};
struct Fp8 {
  static constexpr int kBytes     = 1;
  static constexpr uint32_t kKeep = 0x9F9F9F9F, kSet = 0x20202020;
};

template <class T>
__device__ uint32_t random_values(uint32_t place, bool zeros) {
  uint32_t z = place * 0x9E3779B9u + 0x7F4A7C15u;
  z          = (z ^ (z >> 16)) * 0x85EBCA6Bu;
  z          = (z ^ (z >> 13)) * 0xC2B2AE35u;
  z ^= z >> 16;
  return zeros ? 0 : (z & T::kKeep) | T::kSet;
}

// ---- Hopper

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kABytes = 64 * kRowBytes, kBBytes = kN * kRowBytes;

#define FATHOM_REGISTERS                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FATHOM_8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define FATHOM_32(i) FATHOM_8(i), FATHOM_8(i + 8), FATHOM_8(i + 16), FATHOM_8(i + 24)
#define FATHOM_WGMMA(type, shape, operands, transposes)                                      \
  __device__ void wgmma(type, float(&d)[128], uint64_t a, uint64_t b) {                      \
    asm volatile(                                                                            \
        "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %130, 0;\n"                      \
        "wgmma.mma_async.sync.aligned.m64n256k" shape ".f32." operands " {" FATHOM_REGISTERS \
        "}, %128, %129, accumulate, 1, 1" transposes ";\n}\n"                                \
        : FATHOM_32(0), FATHOM_32(32), FATHOM_32(64), FATHOM_32(96)                          \
        : "l"(a), "l"(b), "r"(1));                                                           \
  }
FATHOM_WGMMA(Bf16, "16", "bf16.bf16", ", 0, 0")
FATHOM_WGMMA(Fp16, "16", "f16.f16", ", 0, 0")
FATHOM_WGMMA(Tf32, "8", "tf32.tf32", "")
FATHOM_WGMMA(Fp8, "32", "e4m3.e4m3", "")

// The descriptor of a tile with 128-byte rows along k and the 128-byte swizzle: eight rows are 1024 bytes.
__device__ uint64_t descriptor(const uint8_t* tile) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return (address & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) wgmma_kernel(int64_t steps, bool zeros, float* sink) {
  __shared__ __align__(1024) uint8_t tiles[2 * kABytes + kBBytes];  // an A for each warpgroup, one B
  for (int i = threadIdx.x; i < static_cast<int>(sizeof tiles / 4); i += kThreads)
    reinterpret_cast<uint32_t*>(tiles)[i] = random_values<T>(blockIdx.x * (sizeof tiles / 4) + i, zeros);
  // The tensor cores read the stores of all threads through the async proxy.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  float d[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) d[i] = 0;
  const uint64_t a = descriptor(tiles + threadIdx.x / kWarpgroup * kABytes);
  const uint64_t b = descriptor(tiles + 2 * kABytes);
#pragma unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kGroup; ++i) wgmma(T{}, d, a + 2 * (i % kSlices), b + 2 * (i % kSlices));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float all = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) all += d[i];
  if (all == 1e-30f) *sink = all;
}

#else

template <class T>
__global__ void wgmma_kernel(int64_t, bool, float*) {
  __trap();  // the launcher uses this on Hopper only, whose code is built for sm_90a
}

#endif

// ---- Other GPUs: mma.sync from registers, 16 x 8 x 32 bytes of k, eight accumulators a warp.

constexpr int kTiles = 8, kWarpsPerBlock = 4, kBlocksPerSm = 4, kMmaPerStep = 4 * kTiles;

__device__ void mma(Bf16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma(Fp16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma(Tf32, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma([[maybe_unused]] Fp8, [[maybe_unused]] float (&d)[4],
                    [[maybe_unused]] const uint32_t (&a)[4], [[maybe_unused]] const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // the launcher rejects this
#endif
}

template <class T>
__global__ void __launch_bounds__(32 * kWarpsPerBlock, kBlocksPerSm)
    mma_kernel(int64_t steps, bool zeros, float* sink) {
  const uint32_t place = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
  uint32_t a[2][4], b[4][2];
#pragma unroll
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = random_values<T>(place + i, zeros);
#pragma unroll
  for (int i = 0; i < 8; ++i) b[i / 2][i % 2] = random_values<T>(place + 8 + i, zeros);
  float d[kTiles][4] = {};
#pragma unroll 1
  for (int64_t s = 0; s < steps; ++s)
#pragma unroll
    for (int i = 0; i < kMmaPerStep; ++i) mma(T{}, d[i % kTiles], a[i % 2], b[i / 2 % 4]);
  float all = 0;
#pragma unroll
  for (int i = 0; i < 4 * kTiles; ++i) all += d[i / 4][i % 4];
  if (all == 1e-30f) *sink = all;
}

// fp64, which has no wgmma: 16 x 8 x 16 an instruction, from registers.

constexpr int kTilesOfFp64 = 4, kMmaOfFp64 = 8 * kTilesOfFp64;

__device__ double random_double(uint32_t place, bool zeros) {
  return zeros ? 0 : static_cast<double>(__uint_as_float(random_values<Tf32>(place, false)));
}

__device__ void mma([[maybe_unused]] double (&d)[4], [[maybe_unused]] const double (&a)[8],
                    [[maybe_unused]] const double (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, "
      "%11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
        "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
  __trap();  // the launcher rejects this
#endif
}

__global__ void __launch_bounds__(32 * kWarpsPerBlock, kBlocksPerSm)
    mma_fp64_kernel(int64_t steps, bool zeros, float* sink) {
  const uint32_t place = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
  double a[8], b[2][4], d[kTilesOfFp64][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) a[i] = random_double(place + i, zeros);
#pragma unroll
  for (int i = 0; i < 8; ++i) b[i / 4][i % 4] = random_double(place + 8 + i, zeros);
#pragma unroll 1
  for (int64_t s = 0; s < steps; ++s)
#pragma unroll
    for (int i = 0; i < kMmaOfFp64; ++i) mma(d[i % kTilesOfFp64], a, b[i % 2]);
  double all = 0;
#pragma unroll
  for (int i = 0; i < 4 * kTilesOfFp64; ++i) all += d[i / 4][i % 4];
  if (all == 1e-30) *sink = static_cast<float>(all);
}

// Of the current GPU: 90 is 9.0.
int capability() {
  const int device = current_gpu();
  int major = 0, minor = 0;
  FATHOM_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FATHOM_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

double launch_fp64(int64_t steps, TileValues values, void* sink, StreamRef stream) {
  FATHOM_EXPECT(capability() >= 90, "fp64 on tensor cores is measured from compute capability 9.0 on");
  mma_fp64_kernel<<<kBlocksPerSm * multiprocessors(), 32 * kWarpsPerBlock, 0, stream>>>(
      steps, values == TileValues::zeros, static_cast<float*>(sink));
  FATHOM_LAUNCHED();
  return static_cast<double>(steps) * multiprocessors() * kBlocksPerSm * kWarpsPerBlock * kMmaOfFp64 *
         (2.0 * 16 * 8 * 16);
}

template <class T>
double launch(int64_t steps, TileValues values, void* sink, StreamRef stream) {
  FATHOM_EXPECT(T::kBytes > 1 || capability() >= 89,
                "the tensor cores of this GPU do not know fp8: that came with compute capability 8.9");
  const bool zeros          = values == TileValues::zeros;
  constexpr double kK       = 32 / T::kBytes;
  const double instructions = static_cast<double>(steps) * multiprocessors();
  if (capability() == 90) {
    wgmma_kernel<T><<<multiprocessors(), kThreads, 0, stream>>>(steps, zeros, static_cast<float*>(sink));
    FATHOM_LAUNCHED();
    return instructions * 2 * kGroup * (2.0 * 64 * kN * kK);
  }
  mma_kernel<T><<<kBlocksPerSm * multiprocessors(), 32 * kWarpsPerBlock, 0, stream>>>(
      steps, zeros, static_cast<float*>(sink));
  FATHOM_LAUNCHED();
  return instructions * kBlocksPerSm * kWarpsPerBlock * kMmaPerStep * (2.0 * 16 * 8 * kK);
}

}  // namespace

double gpu_mma(DType type, int64_t steps, TileValues values, void* sink, StreamRef stream) {
  switch (type) {
    case DType::bf16:
      return launch<Bf16>(steps, values, sink, stream);
    case DType::fp16:
      return launch<Fp16>(steps, values, sink, stream);
    case DType::fp32:
      return launch<Tf32>(steps, values, sink, stream);
    case DType::fp8_e4m3:
      return launch<Fp8>(steps, values, sink, stream);
    case DType::fp64:
      return launch_fp64(steps, values, sink, stream);
    default:
      FATHOM_EXPECT(false, std::string("no tensor-core loop for ") + traits(type).name);
      return 0;
  }
}

}  // namespace fathom::machine
