// out(r, c) = in(token(r), c)                       T x D bf16 to 4 T x D
//
// bytes   10 T D: 2 T D read + 8 T D written, and the map. By place 8 T D are read: the four copies of a
//         row lie experts apart
// flops   0
// limit   DRAM bandwidth. H200: T = 32768, D = 2880 moves 0.94 GB, 0.24 ms at 3.98 TB/s
// idea    baseline: a thread for each element, neighbours side by side. Each divides to find its row,
//         waits for the row's token, then for two bytes
#include "cuda/check.h"
#include "dispatch.h"

namespace fathom::lab::gather_gpu {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const uint16_t* __restrict__ in, const int32_t* __restrict__ token,
                  uint16_t* __restrict__ out, unsigned elements, unsigned hidden) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements) return;
  const unsigned row = i / hidden, column = i - row * hidden;
  out[i] = in[token[row] * hidden + column];
}

}  // namespace

void element(const Dispatch& p, StreamRef stream) {
  const int64_t elements = p.out.size();
  if (elements == 0) return;
  gather_kernel<<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<const uint16_t*>(p.in.data()), p.token.data(),
      reinterpret_cast<uint16_t*>(p.out.data()), static_cast<unsigned>(elements),
      static_cast<unsigned>(p.out.extent(1)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::gather_gpu
