// out(t, r) = sum_d x(t, d) a(d, r)         T tokens, D numbers each, rank 16, fp32
//
// bytes   4 T D of x, once, and 64 T of the result; from L2 also a for each 128 tokens, an eighth of x
// flops   32 T D
// limit   DRAM bandwidth. H200: 262144 tokens of 1024 are 1.09 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    a ring with two mbarriers for each stage. `full` completes when TMA has brought the bytes; `empty`
//         when the four warps that multiply have left the stage. A fifth warp waits for `empty` and asks TMA
//         for a later step: nobody computes addresses, and warps that multiply never wait for each other
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "tile.cuh"

namespace fathom::lab::async_copy_pipeline {
namespace {

constexpr int kConsumers = kThreads / 32;  // warps

__global__ void __launch_bounds__(kThreads + 32)
    mbarrier_ring_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap a,
                         const Shape s, int stages) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ uint64_t full[LoraShrink::kMostStages], empty[LoraShrink::kMostStages];
  auto* const ring = reinterpret_cast<Stage*>(memory);
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kConsumers);
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads

  // Step n is in stage n % stages, in that stage's phase n / stages.
  if (threadIdx.x >= kThreads) {  // the producer
    if (threadIdx.x != kThreads) return;
    for (int step = 0; step < s.steps; ++step) {
      const int stage = step % stages;
      if (step >= stages) ptx::mbarrier_wait(&empty[stage], (step / stages - 1) & 1);
      // What lies beyond the matrices becomes zeros, which count as bytes.
      ptx::mbarrier_arrive_expect_tx(&full[stage], sizeof(Stage));
      ptx::cp_async_bulk_tensor_load(ring[stage].x, &x, blockIdx.x * kTokens, step * kDepth, &full[stage]);
      ptx::cp_async_bulk_tensor_load(ring[stage].a, &a, step * kDepth, 0, &full[stage]);
    }
    return;
  }

  float sums[kRank] = {};
  for (int step = 0; step < s.steps; ++step) {
    const int stage = step % stages;
    ptx::mbarrier_wait(&full[stage], step / stages & 1);
    multiply_stage(ring[stage], sums);
    __syncwarp();  // all lanes have read the stage
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);
  }
  store_sums(s, sums);
}

}  // namespace

void mbarrier_ring(const LoraShrink& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  allow_shared_memory_once<mbarrier_ring_kernel>(LoraShrink::kMostStages * static_cast<int>(sizeof(Stage)));
  mbarrier_ring_kernel<<<s.blocks(), kThreads + 32, static_cast<size_t>(p.stages) * sizeof(Stage), stream>>>(
      tensor_map(s.x, DType::fp32, s.tokens, s.width, int64_t{4} * s.width, kTokens, kDepth,
                 Swizzle::bytes_128),
      tensor_map(s.a, DType::fp32, s.width, kRank, int64_t{4} * kRank, kDepth, kRank), s,
      static_cast<int>(p.stages));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::async_copy_pipeline
