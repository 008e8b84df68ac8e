// Kernels that saturate one resource of the GPU each. `fathom doctor` measures ceilings with them, and a
// run's control times them between the variants.
//
// All enqueue on the stream and return the amount of work they enqueued; a rate is that amount over its time.
// They neither allocate nor synchronise. Pointers are to device memory, aligned to 256 bytes; `sink` is 64
// bytes of it that some kernels write. Sizes are rounded down to whole units of a kernel, and the result is
// of the rounded size.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::machine {

inline constexpr int64_t kGpuLine    = 128;       // bytes, of L1 and L2
inline constexpr int64_t kGpuL1Bytes = 32 << 10;  // the range that l1_read() reads repeatedly

struct GpuKernels {
  double (*read)(const void* data, int64_t bytes, void* sink, StreamRef);  // bytes read
  double (*write)(void* data, int64_t bytes, StreamRef);                   // bytes written
  double (*copy)(void* to, const void* from, int64_t bytes, StreamRef);    // bytes read + written
  // For L2: every block reads the whole range `times` times, each from a different start; bytes read. The
  // range is at least 32 KiB.
  double (*read_repeatedly)(const void* data, int64_t bytes, int64_t times, void* sink, StreamRef);
  double (*shared_read)(int64_t steps, void* sink, StreamRef);  // 16 bytes a thread, no bank conflict; bytes
  double (*l1_read)(const void* data, int64_t steps, void* sink, StreamRef);  // of kGpuL1Bytes; bytes
  // Multiply-adds on the CUDA cores: fp32, fp64, fp16 and bf16 (both as pairs); flops.
  double (*fma)(DType, int64_t steps, void* sink, StreamRef);
  // Multiply-adds on the tensor cores, of random data in shared memory: bf16, fp16, fp32 (as tf32) and
  // fp8_e4m3, accumulated in fp32, and fp64; flops.
  double (*mma)(DType, int64_t steps, void* sink, StreamRef);
  // Dependent loads by one thread along a cycle of make_cycle(), bypassing L1; loads. Start at a different
  // line each time: the lines of the last call may still be cached.
  double (*chase)(const void* line, int64_t loads, void* sink, StreamRef);

  // The same on zeros, which draw the least power: an upper bound where power is the limit.
  double (*mma_of_zeros)(DType, int64_t steps, void* sink, StreamRef);
  // For L2: every block processes its part of the range `times` times; bytes written, and bytes read +
  // written.
  double (*write_repeatedly)(void* data, int64_t bytes, int64_t times, StreamRef);
  double (*copy_repeatedly)(void* to, const void* from, int64_t bytes, int64_t times, StreamRef);
  // Writes a random cycle of pointers, one in each line, through the largest power of two of lines within
  // `bytes`; returns the bytes of those lines.
  double (*make_cycle)(void* data, int64_t bytes, StreamRef);
  double (*nothing)(StreamRef);  // an empty kernel of one thread; launches, 1
};

// Null in a build without CUDA. They run on the current device.
const GpuKernels* gpu_kernels();

// The next line in the cycle of make_cycle(); `lines` is a power of two. A linear congruential generator with
// an odd increment and a factor of 1 modulo 4 visits every number (Hull and Dobell, 1962), in an order that
// no prefetcher predicts.
FATHOM_HD constexpr int64_t next_line(int64_t line, int64_t lines) {
  return static_cast<int64_t>((static_cast<uint64_t>(line) * 6364136223846793005u + 1442695040888963407u) &
                              static_cast<uint64_t>(lines - 1));
}

}  // namespace fathom::machine
