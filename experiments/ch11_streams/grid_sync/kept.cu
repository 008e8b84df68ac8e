// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time after the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^20 a few us
// idea    what a kernel boundary never allows: a thread keeps its elements in shared memory across the wait,
//         as many as fit, 6.5 million on a H200, and reads only the others again
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

constexpr int kManyThreads = 1024, kKept = 12;  // vectors of a thread
constexpr int kSharedBytes = kKept * kManyThreads * 16;

__global__ void __launch_bounds__(kManyThreads, 1)
    clip_kernel(const float* in, float* out, int64_t n, float* partial) {
  extern __shared__ float4 kept[];  // each thread has its own, so no barrier is needed
  const cg::grid_group grid    = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const Walk own               = walk();
  const int64_t vectors        = n / 4;

  float sum = 0;
#pragma unroll 4
  for (int k = 0; k < kKept; ++k) {
    const int64_t v = own.first + k * own.step;
    if (v >= vectors) break;
    const float4 x                       = reinterpret_cast<const float4*>(in)[v];
    kept[k * kManyThreads + threadIdx.x] = x;
    sum += squares(x);
  }
  const Walk rest{own.first + kKept * own.step, own.step};
#pragma unroll 4
  for (int64_t v = rest.first; v < vectors; v += rest.step)
    sum += squares(reinterpret_cast<const float4*>(in)[v]);
  const int64_t last = 4 * vectors + own.first;  // of the n % 4 elements behind the vectors
  if (last < n) sum += in[last] * in[last];

  sum = block_sum(block, sum);
  if (block.thread_rank() == 0) partial[blockIdx.x] = sum;
  grid.sync();  // the sums of all blocks are in memory
  const float scale = scale_for(sum_of(block, partial, static_cast<int>(gridDim.x)));

#pragma unroll 4
  for (int k = 0; k < kKept; ++k) {
    const int64_t v = own.first + k * own.step;
    if (v >= vectors) break;
    reinterpret_cast<float4*>(out)[v] = scaled(kept[k * kManyThreads + threadIdx.x], scale);
  }
#pragma unroll 4
  for (int64_t v = rest.first; v < vectors; v += rest.step)
    reinterpret_cast<float4*>(out)[v] = scaled(reinterpret_cast<const float4*>(in)[v], scale);
  if (last < n) out[last] = in[last] * scale;
}

}  // namespace

void kept(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  const int64_t most = resident_blocks<clip_kernel>(kManyThreads, kSharedBytes);
  launch_cooperative(clip_kernel, blocks_up_to(n, most, kManyThreads), kManyThreads, kSharedBytes, 1, stream,
                     p.in.data(), p.out.data(), n, p.partial.data());
}

}  // namespace fathom::lab::grid_sync
