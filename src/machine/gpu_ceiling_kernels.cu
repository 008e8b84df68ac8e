// The kernels of machine/gpu_ceiling_kernels.h that move bytes, chase pointers and feed the CUDA cores.
//
// bytes   streams: 16 bytes a thread, eight loads in flight before the first use, so 32 KiB a block; four
//         blocks of 256 threads a multiprocessor keep 128 KiB in flight, where Little's law asks H200's DRAM
//         for some 40 (4.8 TB/s, 1 us) and its L2 for less
// flops   multiply-adds: eight chains a thread, four warps a scheduler, so no chain waits for its own result;
// a step
//         takes a microsecond
// idea    the loaded words are combined by exclusive or, and the result is stored if it has one value of
// 2^32: the
//         compiler must keep the loads, and the store costs nothing
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <string>

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/gpu_mma_kernels.h"

namespace fathom::machine {
namespace {

constexpr int kThreads        = 256;
constexpr int kBlocksPerSm    = 4;
constexpr int kVectors        = 8;                    // of 16 bytes, in flight, a thread
constexpr int kChunk          = kThreads * kVectors;  // vectors a block moves at once
constexpr int64_t kChunkBytes = kChunk * 16;
constexpr uint32_t kNever     = 0x5EED5EEDu;

__device__ uint32_t xor_words(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// Bypasses L1, as nothing is read twice.
__device__ uint4 load_once(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

// Always from L2.
__device__ uint4 load_l2(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

__device__ uint4 load_l1(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

// ---- Streams over a range: a block moves `chunks` consecutive chunks, and blocks start as others end, so no
// multiprocessor idles before the end. Indices are of 16-byte vectors.

// Whole chunks need no bounds checks; only the last block can reach the end of the range.
template <class Whole, class Part>
__device__ void for_each_chunk(int64_t vectors, int chunks, Whole whole, Part part) {
  int64_t first = int64_t{blockIdx.x} * chunks * kChunk;
  for (int c = 0; c < chunks && first < vectors; ++c, first += kChunk) {
    if (first + kChunk <= vectors)
      whole(first + threadIdx.x);
    else
      for (int64_t at = first + threadIdx.x; at < vectors; at += kThreads) part(at);
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    read_kernel(const uint4* data, int64_t vectors, int chunks, uint32_t* sink) {
  uint32_t all = 0;
  for_each_chunk(
      vectors, chunks,
      [&](int64_t at) {
        uint4 v[kVectors];
#pragma unroll
        for (int i = 0; i < kVectors; ++i) v[i] = load_once(data + at + i * kThreads);
#pragma unroll
        for (int i = 0; i < kVectors; ++i) all ^= xor_words(v[i]);
      },
      [&](int64_t at) { all ^= xor_words(load_once(data + at)); });
  if (all == kNever) *sink = all;
}

__device__ uint4 written(int64_t at) {
  return make_uint4(static_cast<uint32_t>(at), 0x3C6EF372u, threadIdx.x, blockIdx.x);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    write_kernel(uint4* data, int64_t vectors, int chunks) {
  for_each_chunk(
      vectors, chunks,
      [&](int64_t at) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) data[at + i * kThreads] = written(at);
      },
      [&](int64_t at) { data[at] = written(at); });
}

// One vector a thread: on the H200 this order of reads and writes copied 4.26 TB/s, chunks of several
// vectors 3.70.
__global__ void __launch_bounds__(kThreads) copy_kernel(uint4* to, const uint4* from, int64_t vectors) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < vectors) to[at] = __ldg(from + at);
}

// ---- L2: as many blocks as are resident at once, and whole chunks only.

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    read_repeatedly_kernel(const uint4* data, int64_t chunks, int64_t times, uint32_t* sink) {
  uint32_t all = 0;
  int64_t chunk =
      chunks * blockIdx.x / gridDim.x;  // different starts, so that not all blocks read the same L2 slice
  const int64_t all_chunks = chunks * times;
#pragma unroll 1
  for (int64_t done = 0; done < all_chunks; ++done) {
    const uint4* const at = data + chunk * kChunk + threadIdx.x;
    uint4 v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i] = load_l2(at + i * kThreads);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) all ^= xor_words(v[i]);
    if (++chunk == chunks) chunk = 0;
  }
  if (all == kNever) *sink = all;
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    write_repeatedly_kernel(uint4* data, int64_t chunks, int64_t times) {
  for (int64_t t = 0; t < times; ++t)
    for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
      uint4* const at = data + c * kChunk + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(at + i * kThreads), "r"(static_cast<uint32_t>(t)), "r"(0x3C6EF372u),
                       "r"(threadIdx.x), "r"(blockIdx.x)
                     : "memory");
    }
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    copy_repeatedly_kernel(uint4* to, const uint4* from, int64_t chunks, int64_t times) {
  for (int64_t t = 0; t < times; ++t)
    for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
      const int64_t at = c * kChunk + threadIdx.x;
      uint4 v[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) v[i] = load_l2(from + at + i * kThreads);
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(to + at + i * kThreads), "r"(v[i].x), "r"(v[i].y), "r"(v[i].z), "r"(v[i].w)
                     : "memory");
    }
}

// ---- L1 and shared memory: eight rows of 4 KiB, each one conflict-free access of the block. Neighbouring
// threads swap addresses after every step, so that no load repeats that of the previous step.

constexpr int kRow  = kThreads * 16;
constexpr int kRows = 8;
static_assert(kRows * kRow == kGpuL1Bytes);

__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    l1_read_kernel(const uint4* data, int64_t steps, uint32_t* sink) {
  auto mine    = reinterpret_cast<uintptr_t>(data + threadIdx.x);
  uint32_t all = 0;
#pragma unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    uint4 v[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) v[i] = load_l1(reinterpret_cast<const uint4*>(mine + i * kRow));
#pragma unroll
    for (int i = 0; i < kRows; ++i) all ^= xor_words(v[i]);
    mine ^= 16;
  }
  if (all == kNever) *sink = all;
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm) shared_read_kernel(int64_t steps, uint32_t* sink) {
  __shared__ __align__(32) uint4 rows[kRows * kThreads];
  for (int i = 0; i < kRows; ++i) rows[i * kThreads + threadIdx.x] = make_uint4(threadIdx.x, i, 5, 7);
  __syncthreads();  // orders the stores above before the loads below

  auto mine    = static_cast<uint32_t>(__cvta_generic_to_shared(rows + threadIdx.x));
  uint32_t all = 0;
#pragma unroll 1
  for (int64_t s = 0; s < steps; ++s) {
    uint4 v[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                   : "r"(mine + i * kRow));
#pragma unroll
    for (int i = 0; i < kRows; ++i) all ^= xor_words(v[i]);
    mine ^= 16;
  }
  if (all == kNever) *sink = all;
}

// ---- Multiply-adds. x = factor x + addend with a factor near -1 alternates between two values: bits toggle,
// and nothing overflows or becomes denormal. Both are arguments, so that the compiler does not know their
// values.

constexpr int kChains = 8, kUnrolled = 64, kFmaBlocksPerSm = 2;

__device__ float multiply_add(float x, float f, float a) { return fmaf(x, f, a); }
__device__ double multiply_add(double x, double f, double a) { return fma(x, f, a); }
__device__ __half2 multiply_add(__half2 x, __half2 f, __half2 a) { return __hfma2(x, f, a); }
__device__ __nv_bfloat162 multiply_add(__nv_bfloat162 x, __nv_bfloat162 f, __nv_bfloat162 a) {
  return __hfma2(x, f, a);
}

__device__ void start(float& x, float value) { x = value; }
__device__ void start(double& x, float value) { x = value; }
__device__ void start(__half2& x, float value) { x = __floats2half2_rn(value, value + 1); }
__device__ void start(__nv_bfloat162& x, float value) { x = __floats2bfloat162_rn(value, value + 1); }

__device__ bool is_never(float x) { return x == 1e30f; }
__device__ bool is_never(double x) { return x == 1e300; }
__device__ bool is_never(__half2 x) { return __low2float(x) == 1e30f; }
__device__ bool is_never(__nv_bfloat162 x) { return __low2float(x) == 1e30f; }

template <class T>
__global__ void __launch_bounds__(kThreads, kFmaBlocksPerSm)
    fma_kernel(T factor, T addend, int steps, uint32_t* sink) {
  T x[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) start(x[k], 0.001f * static_cast<float>(threadIdx.x + 1 + 37 * k));
#pragma unroll 1
  for (int s = 0; s < steps; ++s)
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u)
#pragma unroll
      for (int k = 0; k < kChains; ++k) x[k] = multiply_add(x[k], factor, addend);
  bool never = false;
#pragma unroll
  for (int k = 0; k < kChains; ++k) never |= is_never(x[k]);
  if (never) *sink = kNever;
}

// ---- Latency

__global__ void chase_kernel(const void* line, int64_t eights, const void** sink) {
#pragma unroll 1
  for (int64_t i = 0; i < eights; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(line));
  *sink = line;
}

__global__ void make_cycle_kernel(char* data, int64_t lines) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < lines; i += step)
    *reinterpret_cast<void**>(data + i * kGpuLine) = data + next_line(i, lines) * kGpuLine;
}

__global__ void nothing_kernel() {}

// ---- Launchers

struct Shape {
  unsigned grid;
  int chunks;  // a block
};

// Several chunks a block where enough blocks remain to load all multiprocessors evenly.
Shape shape_of(int64_t vectors) {
  const int64_t chunks  = (vectors + kChunk - 1) / kChunk;
  const int64_t share   = chunks / (16 * multiprocessors());
  const int chunks_each = share < 1 ? 1 : share > 4 ? 4 : static_cast<int>(share);
  return {blocks_for(chunks, chunks_each), chunks_each};
}

uint32_t* word(void* sink) { return static_cast<uint32_t*>(sink); }

double read(const void* data, int64_t bytes, void* sink, StreamRef stream) {
  const int64_t vectors = bytes / 16;
  if (vectors == 0) return 0;
  const Shape shape = shape_of(vectors);
  read_kernel<<<shape.grid, kThreads, 0, stream>>>(static_cast<const uint4*>(data), vectors, shape.chunks,
                                                   word(sink));
  FATHOM_LAUNCHED();
  return 16.0 * static_cast<double>(vectors);
}

double write(void* data, int64_t bytes, StreamRef stream) {
  const int64_t vectors = bytes / 16;
  if (vectors == 0) return 0;
  const Shape shape = shape_of(vectors);
  write_kernel<<<shape.grid, kThreads, 0, stream>>>(static_cast<uint4*>(data), vectors, shape.chunks);
  FATHOM_LAUNCHED();
  return 16.0 * static_cast<double>(vectors);
}

double copy(void* to, const void* from, int64_t bytes, StreamRef stream) {
  const int64_t vectors = bytes / 16;
  if (vectors == 0) return 0;
  copy_kernel<<<blocks_for(vectors, kThreads), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), vectors);
  FATHOM_LAUNCHED();
  return 32.0 * static_cast<double>(vectors);
}

int64_t chunks_of(int64_t bytes) {
  FATHOM_EXPECT(bytes >= kChunkBytes, "a range to go over repeatedly has 32 KiB at least");
  return bytes / kChunkBytes;
}

unsigned resident_blocks() { return static_cast<unsigned>(kBlocksPerSm * multiprocessors()); }

double read_repeatedly(const void* data, int64_t bytes, int64_t times, void* sink, StreamRef stream) {
  const int64_t chunks = chunks_of(bytes);
  const unsigned grid  = resident_blocks();
  read_repeatedly_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint4*>(data), chunks, times,
                                                        word(sink));
  FATHOM_LAUNCHED();
  return static_cast<double>(grid) * static_cast<double>(chunks * kChunkBytes) * static_cast<double>(times);
}

unsigned blocks_for_chunks(int64_t chunks) {
  const unsigned resident = resident_blocks();
  return chunks < resident ? static_cast<unsigned>(chunks) : resident;
}

double write_repeatedly(void* data, int64_t bytes, int64_t times, StreamRef stream) {
  const int64_t chunks = chunks_of(bytes);
  write_repeatedly_kernel<<<blocks_for_chunks(chunks), kThreads, 0, stream>>>(static_cast<uint4*>(data),
                                                                              chunks, times);
  FATHOM_LAUNCHED();
  return static_cast<double>(chunks * kChunkBytes) * static_cast<double>(times);
}

double copy_repeatedly(void* to, const void* from, int64_t bytes, int64_t times, StreamRef stream) {
  const int64_t chunks = chunks_of(bytes);
  copy_repeatedly_kernel<<<blocks_for_chunks(chunks), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), chunks, times);
  FATHOM_LAUNCHED();
  return 2.0 * static_cast<double>(chunks * kChunkBytes) * static_cast<double>(times);
}

double rows_read(unsigned grid, int64_t steps) {
  return static_cast<double>(grid) * kRows * kRow * static_cast<double>(steps);
}

double shared_read(int64_t steps, void* sink, StreamRef stream) {
  const unsigned grid = resident_blocks();
  shared_read_kernel<<<grid, kThreads, 0, stream>>>(steps, word(sink));
  FATHOM_LAUNCHED();
  return rows_read(grid, steps);
}

double l1_read(const void* data, int64_t steps, void* sink, StreamRef stream) {
  const unsigned grid = resident_blocks();
  l1_read_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const uint4*>(data), steps, word(sink));
  FATHOM_LAUNCHED();
  return rows_read(grid, steps);
}

template <class T>
double launch_fma(T factor, T addend, int lanes, int64_t steps, void* sink, StreamRef stream) {
  FATHOM_EXPECT(steps >= 0 && steps <= INT32_MAX, "steps of multiply-adds are counted in 32 bits");
  const auto grid = static_cast<unsigned>(kFmaBlocksPerSm * multiprocessors());
  fma_kernel<<<grid, kThreads, 0, stream>>>(factor, addend, static_cast<int>(steps), word(sink));
  FATHOM_LAUNCHED();
  return 2.0 * lanes * kChains * kUnrolled * kThreads * grid * static_cast<double>(steps);
}

double multiply_adds(DType type, int64_t steps, void* sink, StreamRef stream) {
  switch (type) {
    case DType::fp32:
      return launch_fma(-0.9999999f, 1.0f, 1, steps, sink, stream);
    case DType::fp64:
      return launch_fma(-0.9999999, 1.0, 1, steps, sink, stream);
    case DType::fp16:
      return launch_fma(__float2half2_rn(-1), __float2half2_rn(1), 2, steps, sink, stream);
    case DType::bf16:
      return launch_fma(__float2bfloat162_rn(-1), __float2bfloat162_rn(1), 2, steps, sink, stream);
    default:
      FATHOM_EXPECT(false,
                    std::string("no multiply-add on the CUDA cores is measured for ") + traits(type).name);
      return 0;
  }
}

double multiply_tiles(DType type, int64_t steps, void* sink, StreamRef stream) {
  return gpu_mma(type, steps, TileValues::random, sink, stream);
}

double multiply_tiles_of_zeros(DType type, int64_t steps, void* sink, StreamRef stream) {
  return gpu_mma(type, steps, TileValues::zeros, sink, stream);
}

double chase(const void* line, int64_t loads, void* sink, StreamRef stream) {
  const int64_t eights = (loads + 7) / 8;
  chase_kernel<<<1, 1, 0, stream>>>(line, eights, static_cast<const void**>(sink));
  FATHOM_LAUNCHED();
  return 8.0 * static_cast<double>(eights);
}

double make_cycle(void* data, int64_t bytes, StreamRef stream) {
  int64_t lines = 1;
  while (2 * lines <= bytes / kGpuLine) lines *= 2;
  make_cycle_kernel<<<resident_blocks(), kThreads, 0, stream>>>(static_cast<char*>(data), lines);
  FATHOM_LAUNCHED();
  return static_cast<double>(lines * kGpuLine);
}

double nothing(StreamRef stream) {
  nothing_kernel<<<1, 1, 0, stream>>>();
  FATHOM_LAUNCHED();
  return 1;
}

}  // namespace

const GpuKernels* gpu_kernels() {
  static constexpr GpuKernels kKernels{.read             = read,
                                       .write            = write,
                                       .copy             = copy,
                                       .read_repeatedly  = read_repeatedly,
                                       .shared_read      = shared_read,
                                       .l1_read          = l1_read,
                                       .fma              = multiply_adds,
                                       .mma              = multiply_tiles,
                                       .chase            = chase,
                                       .mma_of_zeros     = multiply_tiles_of_zeros,
                                       .write_repeatedly = write_repeatedly,
                                       .copy_repeatedly  = copy_repeatedly,
                                       .make_cycle       = make_cycle,
                                       .nothing          = nothing};
  return &kKernels;
}

}  // namespace fathom::machine
