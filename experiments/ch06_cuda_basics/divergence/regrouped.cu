// out(i) = mean of P_kind(i) over 0 .. load(i)          n samples of 4 materials, fp32
//
// flops   1024 n    32 nodes x (a polynomial of degree 15, its argument, the sum)
// bytes   9 n
// limit   FMA peak. A node is 15 FMAs, a product and two sums: 32 flops in 18 instructions, 89 % of the peak
// idea    a block sorts the numbers of its samples into a list for each material, in shared memory, and
//         warps take 32 of one list at a time: the same switch, but all lanes take the same branch
#include "cuda/check.h"
#include "material.cuh"

namespace fathom::lab::divergence {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps   = kThreads / 32;
constexpr int kTile    = 2048;  // samples of a block: some 64 pieces of 32, of which four are not full

__global__ void __launch_bounds__(kThreads)
    response_kernel(const float* load, const uint8_t* kind, float* out, int n) {
  __shared__ uint16_t member[kKinds][kTile];
  __shared__ int count[kKinds];

  const int first = blockIdx.x * kTile, here = min(kTile, n - first);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < kKinds) count[threadIdx.x] = 0;
  __syncthreads();  // the counts are zero before anyone adds to them

#pragma unroll
  for (int t = 0; t < kTile; t += kThreads) {
    const int sample     = t + threadIdx.x;
    const int mine       = sample < here ? kind[first + sample] : kKinds;
    const unsigned peers = __match_any_sync(~0u, mine);  // the lanes with a sample of my kind
    const int rank       = __popc(peers & ((1u << lane) - 1));
    int base             = 0;
    if (rank == 0 && mine < kKinds) base = atomicAdd(&count[mine], __popc(peers));
    base = __shfl_sync(~0u, base, __ffs(peers) - 1);
    if (mine < kKinds) member[mine][base + rank] = static_cast<uint16_t>(sample);
  }
  __syncthreads();  // the lists are complete before warps read them

  int piece = warp;  // of 32 samples, counted from the beginning of the current list
#pragma unroll
  for (int k = 0; k < kKinds; ++k) {
    const int length = count[k], pieces = (length + 31) / 32;
    for (; piece < pieces; piece += kWarps) {
      const int place = piece * 32 + lane;
      if (place >= length) continue;
      const int i = first + member[k][place];
      out[i]      = response(k, load[i]);
    }
    piece -= pieces;
  }
}

}  // namespace

void regrouped(const Responses& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "samples are counted in 32 bits");
  if (n == 0) return;
  response_kernel<<<blocks_for(n, kTile), kThreads, 0, stream>>>(p.load.data(), p.kind.data(), p.out.data(),
                                                                 static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::divergence
