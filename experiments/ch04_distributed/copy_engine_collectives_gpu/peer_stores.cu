// to(i) = from(i), `to` in the memory of another GPU
//
// bytes   of the rows, read here and written there
// limit   the link, 370 to 396 GB/s a direction
// idea    a kernel of kCtas thread blocks of plain 16-byte loads and stores through the peer's pointer: no
//         protocol, and no buffer on the way. A thread has four loads in flight, all threads 512 KiB, which
//         is what 650 GB/s need at 0.8 us. The multiprocessors it runs on are lost to the products
#include "cuda/check.h"
#include "forward.h"

namespace fathom::lab::copy_engine_collectives_gpu {
namespace {

constexpr int kCtas = 16, kThreads = 512, kInFlight = 4;

__global__ void __launch_bounds__(kThreads) push_kernel(const uint4* from, uint4* to, int64_t vectors) {
  const int64_t threads = int64_t{kCtas} * kThreads;
  int64_t i             = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kInFlight - 1) * threads < vectors; i += kInFlight * threads) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) v[k] = __ldcs(from + i + k * threads);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) to[i + k * threads] = v[k];
  }
  for (; i < vectors; i += threads) to[i] = from[i];
}

}  // namespace

Call peer_stores(const ShardedLayers& p, Context& context) {
  return beside_pushes(p, context,
                       [](const std::byte* from, int, std::byte* to, int, int64_t bytes, StreamRef stream) {
                         push_kernel<<<kCtas, kThreads, 0, stream>>>(
                             reinterpret_cast<const uint4*>(from), reinterpret_cast<uint4*>(to), bytes / 16);
                         FATHOM_LAUNCHED();
                       });
}

}  // namespace fathom::lab::copy_engine_collectives_gpu
