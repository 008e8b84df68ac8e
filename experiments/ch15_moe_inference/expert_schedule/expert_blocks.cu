// out(i, j) = sum_k x(i, k) W[e](k, j)       rows i of expert e, fp32
//
// bytes   4 (E K N + R (K + N)): weights once; a slice's 128 KiB wait for 5 us of the multiprocessor's share
//         of memory; x comes from L2, once for each slice
// flops   2 R K N
// limit   FMA peak, if all multiprocessors had work to the end. H200: 16384 rows, K = 1024, N = 512 are 17
//         GFLOP, 0.26 ms at 67 TFLOP/s. Reads of shared memory and L1 allow two thirds of it
// idea    a block keeps a slice of an expert's weights and takes the expert's rows past it, so that its time
//         grows with the rows. One block fits on a multiprocessor. Who begins when is the schedule: experts
//         as they are numbered; those with the most rows first (LPT, Graham 1969); or resident blocks that
//         draw tickets from an atomic counter, the most rows first too
#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "expert_blocks.h"

namespace fathom::lab::expert_schedule {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kRows = 8;  // of a warp at a time: each number of the slice that it reads is used 8 times
static_assert(kMostExperts <= kThreads);

// What the kernels take.
struct Shape {
  const int32_t* first;
  const float *x, *w;
  float* out;
  double* times;
  uint32_t* tickets;
  int experts, depth, columns;

  Shape(const ExpertBlocks& p)
      : first(p.first.data()),
        x(p.x.data()),
        w(p.w.data()),
        out(p.out.data()),
        times(p.times.data()),
        tickets(p.tickets.data()),
        experts(static_cast<int>(p.w.extent(0))),
        depth(static_cast<int>(p.w.extent(1))),
        columns(static_cast<int>(p.w.extent(2))) {}

  __host__ __device__ int slices() const { return columns / kSlice; }
  __host__ __device__ int units() const { return experts * slices(); }
  size_t shared_bytes() const { return static_cast<size_t>(depth) * kSlice * sizeof(float); }
};

// Nanoseconds on a clock that all multiprocessors share; it starts again after 18 minutes.
__device__ double now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return static_cast<double>(now & ((uint64_t{1} << 40) - 1));
}
__device__ int multiprocessor() {
  int id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

// The expert with the n-th most rows, of equal ones the first. Each thread ranks one expert. Called by all
// threads; between two calls lies a barrier.
__device__ int nth_longest(const Shape& s, int n) {
  __shared__ int rows[kMostExperts], found;
  const int e = threadIdx.x;
  if (e < s.experts) rows[e] = s.first[e + 1] - s.first[e];
  __syncthreads();  // rows are complete
  if (e < s.experts) {
    int before = 0;
    for (int other = 0; other < s.experts; ++other)
      before += rows[other] > rows[e] || (rows[other] == rows[e] && other < e);
    if (before == n) found = e;
  }
  __syncthreads();  // found is known to all
  return found;
}

// A slice of an expert, all its rows. Called by all threads.
__device__ void run_unit(const Shape& s, int expert, int slice, float* weights) {
  double* const times = s.times + 3 * (expert * s.slices() + slice);
  if (threadIdx.x == 0) times[0] = now_ns();
  const float* const from = s.w + int64_t{expert} * s.depth * s.columns + slice * kSlice;
  for (int v = threadIdx.x; v < s.depth * (kSlice / 4); v += kThreads)
    ptx::cp_async_cg(weights + 4 * v, from + int64_t{v / (kSlice / 4)} * s.columns + v % (kSlice / 4) * 4);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // all parts of the slice have arrived

  const int lane = threadIdx.x % 32, end = s.first[expert + 1];
  for (int row = s.first[expert] + threadIdx.x / 32 * kRows; row < end; row += kWarps * kRows) {
    const float* of_row[kRows];  // behind the last row: the last one again
#pragma unroll
    for (int r = 0; r < kRows; ++r) of_row[r] = s.x + int64_t{min(row + r, end - 1)} * s.depth;
    float sums[kRows] = {};
#pragma unroll 1  // 16 warps hide the latency
    for (int k = 0; k < s.depth; k += 4) {
      float4 x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) x[r] = __ldg(reinterpret_cast<const float4*>(of_row[r] + k));
      const float* const w = weights + k * kSlice + lane;
      const float w4[]     = {w[0], w[kSlice], w[2 * kSlice], w[3 * kSlice]};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] = fmaf(x[r].x, w4[0], sums[r]);
        sums[r] = fmaf(x[r].y, w4[1], sums[r]);
        sums[r] = fmaf(x[r].z, w4[2], sums[r]);
        sums[r] = fmaf(x[r].w, w4[3], sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (row + r < end) s.out[int64_t{row + r} * s.columns + slice * kSlice + lane] = sums[r];
  }
  __syncthreads();  // all warps have ended, and left the slice, which the next unit overwrites
  if (threadIdx.x == 0) times[1] = now_ns(), times[2] = multiprocessor();
}

template <bool kLongestFirst>
__device__ void run_nth(const Shape& s, int n, float* weights) {
  const int which = n / s.slices();
  run_unit(s, kLongestFirst ? nth_longest(s, which) : which, n % s.slices(), weights);
}

template <bool kLongestFirst>
__global__ void __launch_bounds__(kThreads, 1) grid_kernel(const Shape s) {
  extern __shared__ __align__(16) float weights[];
  run_nth<kLongestFirst>(s, blockIdx.x, weights);
}

__global__ void __launch_bounds__(kThreads, 1) queue_kernel(const Shape s) {
  extern __shared__ __align__(16) float weights[];
  __shared__ int ticket;
  while (true) {
    if (threadIdx.x == 0) ticket = static_cast<int>(atomicAdd(s.tickets, 1u));
    __syncthreads();  // the ticket is known to all; run_nth ends with a barrier before the next is drawn
    const int n = ticket;
    if (n >= s.units()) return;
    run_nth<true>(s, n, weights);
  }
}

template <bool kLongestFirst>
void launch_grid(const ExpertBlocks& p, StreamRef stream) {
  const Shape s(p);
  allow_shared_memory_once<grid_kernel<kLongestFirst>>(kMostDepth * kSlice * 4);
  grid_kernel<kLongestFirst><<<s.units(), kThreads, s.shared_bytes(), stream>>>(s);
  FATHOM_LAUNCHED();
}

}  // namespace

void in_order(const ExpertBlocks& p, StreamRef stream) { launch_grid<false>(p, stream); }
void longest_first(const ExpertBlocks& p, StreamRef stream) { launch_grid<true>(p, stream); }

void ticket_queue(const ExpertBlocks& p, StreamRef stream) {
  const Shape s(p);
  allow_shared_memory_once<queue_kernel>(kMostDepth * kSlice * 4);
  FATHOM_CUDA(cudaMemsetAsync(s.tickets, 0, sizeof(uint32_t), stream));
  queue_kernel<<<std::min(s.units(), multiprocessors()), kThreads, s.shared_bytes(), stream>>>(s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::expert_schedule
