// The GPU's ceilings as kernels: each keeps one resource as busy as it can be kept. `fathom doctor` measures
// with them, and a run's control samples them between the variants.
//
// All enqueue on the stream and return how much work they enqueued: a rate is that over the time it took. No
// allocation, no synchronisation. Pointers are to device memory, aligned to 256 bytes; `sink` is 64 bytes of
// it that some of them write. Sizes are rounded down to what a kernel can do, and the answer says so.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"

namespace fathom::machine {

inline constexpr int64_t kGpuLine    = 128;       // bytes, of L1 and L2
inline constexpr int64_t kGpuL1Bytes = 32 << 10;  // what l1_read() reads again and again

struct GpuKernels {
  double (*read)(const void* data, int64_t bytes, void* sink, StreamRef);  // bytes read
  double (*write)(void* data, int64_t bytes, StreamRef);                   // bytes written
  double (*copy)(void* to, const void* from, int64_t bytes, StreamRef);    // bytes read + written
  // For L2: every block reads the whole range `times`, each from another place on; bytes read. 32 KiB at
  // least.
  double (*read_repeatedly)(const void* data, int64_t bytes, int64_t times, void* sink, StreamRef);
  double (*shared_read)(int64_t steps, void* sink, StreamRef);  // 16 bytes a thread, no conflict; bytes
  double (*l1_read)(const void* data, int64_t steps, void* sink, StreamRef);  // of kGpuL1Bytes; bytes
  // Multiply-adds on the CUDA cores: fp32, fp64, fp16 and bf16 (both by pairs); flops.
  double (*fma)(DType, int64_t steps, void* sink, StreamRef);
  // Multiply-adds on the tensor cores, of random data that lies in shared memory: bf16, fp16, fp32 (meaning
  // tf32), fp8_e4m3, each accumulated in fp32, and fp64; flops.
  double (*mma)(DType, int64_t steps, void* sink, StreamRef);
  // Dependent loads by one thread, from a line of a cycle that make_cycle() laid, past L1; loads. Start
  // somewhere else each time, lest the lines of the last call still lie in a cache.
  double (*chase)(const void* line, int64_t loads, void* sink, StreamRef);

  // The same on zeros, which cost the least power: what no data can beat where power is the limit.
  double (*mma_of_zeros)(DType, int64_t steps, void* sink, StreamRef);
  // For L2: every block its own part of the range, `times`; bytes written, and bytes read + written.
  double (*write_repeatedly)(void* data, int64_t bytes, int64_t times, StreamRef);
  double (*copy_repeatedly)(void* to, const void* from, int64_t bytes, int64_t times, StreamRef);
  // Lays a random cycle of pointers, one a line, through the largest power of two of lines within `bytes`;
  // returns their bytes.
  double (*make_cycle)(void* data, int64_t bytes, StreamRef);
  double (*nothing)(StreamRef);  // an empty kernel of one thread; launches, 1
};

// Null in a build without CUDA. They run on the current device.
const GpuKernels* gpu_kernels();

// The line after this one in the cycle of make_cycle(); `lines` is a power of two. A linear congruential
// generator whose increment is odd and whose factor is 1 modulo 4 goes through every number (Hull and Dobell,
// 1962), in an order no prefetcher guesses.
FATHOM_HD constexpr int64_t next_line(int64_t line, int64_t lines) {
  return static_cast<int64_t>((static_cast<uint64_t>(line) * 6364136223846793005u + 1442695040888963407u) &
                              static_cast<uint64_t>(lines - 1));
}

}  // namespace fathom::machine
