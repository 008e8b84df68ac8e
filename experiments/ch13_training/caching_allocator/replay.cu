// words of an allocation = tag + 0, 1, 2, ...;  out = their sum        up to 256 words, int32, a warp
//
// bytes   at most 2 KiB an allocation, each word in a sector of its own
// limit   the launch: some 2 us. The kernels are as short as kernels can be, so that the host's time in the
//         allocator shows
// idea    words spread over the whole allocation, its first and its last among them: another allocation that
//         lies across them changes the sum
#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

constexpr int kLanes = 32;

// Of word t out of `count`, which are no more than there are words.
__device__ int64_t place_of(int t, int count, int64_t words) {
  return count > 1 ? t * (words - 1) / (count - 1) : 0;
}

__global__ void __launch_bounds__(kLanes)
    write_kernel(int32_t* memory, int64_t words, int count, const int32_t* tag) {
  for (int t = threadIdx.x; t < count; t += kLanes) memory[place_of(t, count, words)] = *tag + t;
}

__global__ void __launch_bounds__(kLanes)
    sum_kernel(const int32_t* memory, int64_t words, int count, int32_t* out) {
  int32_t sum = 0;
  for (int t = threadIdx.x; t < count; t += kLanes) sum += memory[place_of(t, count, words)];
  sum = warp_reduce_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

struct Words {
  int64_t all;
  int count;
};
Words words_of(const Replay& p, int32_t allocation) {
  const int64_t all = p.trace->bytes[static_cast<size_t>(allocation)] / static_cast<int64_t>(sizeof(int32_t));
  return {all, static_cast<int>(all < kMostWords ? all : kMostWords)};
}

}  // namespace

void write_words(const Replay& p, int32_t allocation, void* memory, StreamRef stream) {
  const Words words = words_of(p, allocation);
  write_kernel<<<1, kLanes, 0, stream>>>(static_cast<int32_t*>(memory), words.all, words.count,
                                         &p.tag(allocation));
  FATHOM_LAUNCHED();
}

void sum_words(const Replay& p, int32_t allocation, const void* memory, StreamRef stream) {
  const Words words = words_of(p, allocation);
  sum_kernel<<<1, kLanes, 0, stream>>>(static_cast<const int32_t*>(memory), words.all, words.count,
                                       &p.out(allocation));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::caching_allocator
