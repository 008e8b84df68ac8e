#include "cuda/checksum.h"

#include "core/splitmix64.h"
#include "cuda/check.h"
#include "cuda/grid.cuh"

namespace fathom {
namespace {

// A sum of hashes of (value, position), which does not depend on the order in which CTAs add.
__global__ void checksum_kernel(const uint8_t* data, int64_t bytes, unsigned long long* sum) {
  const int64_t words = bytes / 8, step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint64_t mine       = 0;
  for (int64_t i = first; i < words; i += step)
    mine += splitmix64(reinterpret_cast<const uint64_t*>(data)[i] +
                       kSplitmix64Increment * static_cast<uint64_t>(i + 1));
  if (first < bytes % 8)
    mine += splitmix64(data[words * 8 + first] +
                       0xD1B54A32D192ED03ull * static_cast<uint64_t>(words * 8 + first + 1));
  for (int lane = 16; lane > 0; lane /= 2) mine += __shfl_xor_sync(~0u, mine, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(mine));
}

}  // namespace

void enqueue_checksum(const void* data, int64_t bytes, unsigned long long* sum, StreamRef stream) {
  if (bytes == 0) return;
  const unsigned blocks = std::min(grid_stride_blocks(bytes / 8), 4096u);
  checksum_kernel<<<blocks, kGridStrideBlock, 0, stream>>>(static_cast<const uint8_t*>(data), bytes, sum);
  FATHOM_LAUNCHED();
}

}  // namespace fathom
