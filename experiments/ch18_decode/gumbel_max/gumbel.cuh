// What the kernels share: keys of sums, and the argmax of a row that a cluster of CTAs has. The sum of one
// token is the engine's, the same bits everywhere.
#pragma once

#include <cstdint>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/radix_key.cuh"
#include "gumbel_max.h"
#include "kernels/sampling/gumbel.cuh"

namespace fathom::lab::gumbel_max {

using kernels::gumbel, kernels::gumbel_words, kernels::perturbed, kernels::rest_of;

inline constexpr int kCtas = 8, kThreads = 512, kWarps = kThreads / 32;  // of a cluster; of a CTA

// Larger for a larger sum, and of equal sums for a lower id.
__device__ inline uint64_t key_of(float sum, int id) {
  return uint64_t{radix_key(sum)} << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}

__device__ inline float at(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ inline uint32_t at(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Every thread of the cluster brings its best key; thread 0 of the first CTA stores the id.
__device__ inline void store_argmax(uint64_t best, int32_t& id) {
  __shared__ uint64_t of_warps[kWarps];
  __shared__ __align__(16) uint64_t of_cta[2];
#pragma unroll
  for (int other = 16; other > 0; other /= 2) best = max(best, __shfl_xor_sync(~0u, best, other));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();  // of_warps is complete
  if (threadIdx.x == 0) {
    for (const uint64_t one : of_warps) best = max(best, one);
    of_cta[0] = best;
  }
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // of_cta is complete in all CTAs
  if (blockIdx.x % kCtas == 0 && threadIdx.x == 0) {
    for (int cta = 1; cta < kCtas; ++cta) {
      const float4 bits =
          ptx::ld_shared_cluster_v4(ptx::mapa_shared_cluster(ptx::shared_address(&of_cta), cta));
      best = max(best, uint64_t{__float_as_uint(bits.y)} << 32 | __float_as_uint(bits.x));
    }
    id = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
  }
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // no CTA leaves while the first one reads its shared memory
}

using Kernel = void (*)(const float*, const kernels::SamplingRow*, int32_t*, int);

inline void launch_in_clusters(Kernel kernel, const Draw& p, StreamRef stream) {
  if (p.logits.size() == 0) return;
  cudaLaunchAttribute in_clusters{};
  in_clusters.id               = cudaLaunchAttributeClusterDimension;
  in_clusters.val.clusterDim.x = kCtas;
  in_clusters.val.clusterDim.y = in_clusters.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim  = dim3(static_cast<unsigned>(p.rows * kCtas));
  launch.blockDim = dim3(kThreads);
  launch.stream   = stream;
  launch.attrs    = &in_clusters;
  launch.numAttrs = 1;
  FATHOM_CUDA(cudaLaunchKernelEx(&launch, kernel, p.logits.data(), p.rules.data(), p.ids.data(),
                                 static_cast<int>(p.vocabulary)));
}

}  // namespace fathom::lab::gumbel_max
