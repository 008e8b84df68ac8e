// out(r, c) = in(token(r), c)                       T x D bf16 to 4 T x D
//
// bytes   10 T D: 2 T D read + 8 T D written, and the map. By place 8 T D are read: the four copies of a
//         row lie experts apart
// flops   0
// limit   DRAM bandwidth. H200: T = 32768, D = 2880 moves 0.94 GB, 0.24 ms at 3.98 TB/s
// idea    a warp for each row: its token is looked up once, and each lane has four vectors of 16 bytes
//         in flight
#include "cuda/check.h"
#include "dispatch.h"

namespace fathom::lab::gather_gpu {
namespace {

constexpr int kWarp    = 32;
constexpr int kWarps   = 8;  // rows of a block
constexpr int kThreads = kWarp * kWarps;
constexpr int kVectors = 4;  // in flight in each lane

// Vector: uint4, or a single element where rows do not begin at multiples of 16 bytes. `width` counts
// vectors.
template <class Vector>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const Vector* __restrict__ in, const int32_t* __restrict__ token, Vector* __restrict__ out,
                  int rows, int width) {
  const int row = blockIdx.x * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (row >= rows) return;
  in += int64_t{token[row]} * width;
  out += int64_t{row} * width;
  for (int first = lane; first < width; first += kVectors * kWarp) {
    Vector v[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (first + k * kWarp < width) v[k] = in[first + k * kWarp];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (first + k * kWarp < width) out[first + k * kWarp] = v[k];
  }
}

template <class Vector>
void launch(const Dispatch& p, StreamRef stream) {
  constexpr int kElements = sizeof(Vector) / sizeof(bf16);
  const int rows          = static_cast<int>(p.out.extent(0));
  gather_kernel<<<blocks_for(rows, kWarps), kThreads, 0, stream>>>(
      reinterpret_cast<const Vector*>(p.in.data()), p.token.data(), reinterpret_cast<Vector*>(p.out.data()),
      rows, static_cast<int>(p.out.extent(1)) / kElements);
  FATHOM_LAUNCHED();
}

}  // namespace

void row_vectors(const Dispatch& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  p.out.extent(1) % 8 == 0 ? launch<uint4>(p, stream) : launch<uint16_t>(p, stream);
}

}  // namespace fathom::lab::gather_gpu
