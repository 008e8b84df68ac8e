// A CTA holds 64 queries for each of its kGroups consumer warpgroups in registers and walks over all keys, in
// tiles of 128. A producer warp brings the tiles by TMA into a ring of stages. The CTAs of a cluster walk in
// step: each loads a part of a tile and multicasts it to all, so that the tile leaves L2 once for the
// cluster.
#pragma once

#include <cmath>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/warp_reduce.cuh"
#include "cuda/wgmma.cuh"
#include "similarity.h"

namespace fathom::lab::cluster_multicast {

inline constexpr int kDims       = Similarity::kDims;
inline constexpr int kRows       = 64;   // queries of a warpgroup
inline constexpr int kKeys       = 128;  // of a tile
inline constexpr int kHalfDims   = 64;   // a swizzled row is 128 bytes, so a tile is two halves
inline constexpr int kHalfBytes  = kKeys * kHalfDims * 2;
inline constexpr int kStageBytes = 2 * kHalfBytes;
inline constexpr int kStages = 3;  // 96 KiB: two CTAs of one warpgroup fit on a multiprocessor, or one of two
inline constexpr int kWarpgroup = 128;
static_assert(kDims == 2 * kHalfDims);

struct Ring {
  alignas(1024) unsigned char stages[kStages][kStageBytes];
  uint64_t full[kStages];   // the whole tile has arrived in this CTA
  uint64_t empty[kStages];  // all consumers of the cluster have left the stage
};

// One thread of each CTA loads this CTA's part of each tile.
template <int kCluster>
__device__ void produce(const CUtensorMap& keys, Ring& ring, int tiles) {
  constexpr int kPart = kKeys / kCluster;  // keys
  const int rank      = static_cast<int>(blockIdx.x) % kCluster;
  ptx::prefetch_tensormap(&keys);
  for (int n = 0; n < tiles; ++n) {
    const int stage = n % kStages;
    // The load writes into every CTA of the cluster: all of them must have left the stage.
    if (n >= kStages) ptx::mbarrier_wait(&ring.empty[stage], (n / kStages - 1) & 1);
    // This CTA's own barrier expects the whole tile, of which the others send their parts. A part that is
    // early is counted too: it cannot be a phase early, as its sender waited for this CTA's consumers.
    ptx::mbarrier_arrive_expect_tx(&ring.full[stage], kStageBytes);
    for (int half = 0; half < 2; ++half) {
      unsigned char* to = ring.stages[stage] + half * kHalfBytes + rank * kPart * (kHalfDims * 2);
      const int key = n * kKeys + rank * kPart, dim = half * kHalfDims;
      if constexpr (kCluster == 1)
        ptx::cp_async_bulk_tensor_load(to, &keys, key, dim, &ring.full[stage]);
      else
        ptx::cp_async_bulk_tensor_load_multicast(to, &keys, key, dim, &ring.full[stage],
                                                 static_cast<uint16_t>((1 << kCluster) - 1));
    }
  }
}

// The A fragments of the warp's 16 queries (cuda/wgmma.cuh): rows g and g + 8. Zeros beyond the last query.
__device__ inline void load_queries(uint32_t (&q)[kDims / 16][4], const bf16* queries, int row, int count) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < kDims / 16; ++k)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int of = row + r % 2 * 8, dim = 16 * k + 2 * t + r / 2 * 8;
      q[k][r] = of < count ? *reinterpret_cast<const uint32_t*>(queries + int64_t{of} * kDims + dim) : 0;
    }
}

template <int kCluster>
__device__ void consume(const bf16* queries, float* out, int query_count, int key_count, Ring& ring,
                        int tiles) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  // Row g of the warp's 16. threadIdx.x / 32 counts the warps of all groups.
  const int row = static_cast<int>(blockIdx.x * (blockDim.x - 32) / 2) +
                  static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  uint32_t q[kDims / 16][4];
  load_queries(q, queries, row, query_count);

  const uint64_t operands = ptx::smem_descriptor_128b(ptx::shared_address(ring.stages));
  float largest[2]        = {-INFINITY, -INFINITY};  // of rows g and g + 8
  for (int n = 0; n < tiles; ++n) {
    const int stage = n % kStages;
    ptx::mbarrier_wait(&ring.full[stage], n / kStages & 1);

    float scores[kKeys / 2];
    ptx::warpgroup_fence_operand(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDims / 16; ++k)
      ptx::wgmma(scores, q[k],
                 ptx::advance_descriptor(operands, stage * kStageBytes + k / 4 * kHalfBytes + k % 4 * 32),
                 k > 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(scores);

    // The warp has read the tile. Every producer of the cluster waits for that.
    if constexpr (kCluster == 1) {
      if (lane == 0) ptx::mbarrier_arrive(&ring.empty[stage]);
    } else if (lane < kCluster) {
      ptx::mbarrier_arrive_cluster(ptx::mapa_shared_cluster(ptx::shared_address(&ring.empty[stage]), lane));
    }

    if (const int valid = key_count - n * kKeys; valid < kKeys) {  // zeros behind the last key do not count
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i)
        if (i / 4 * 8 + 2 * t + i % 2 >= valid) scores[i] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], scores[i]);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float of_row = quad_reduce_max(largest[r]);
    if (t == 0 && row + 8 * r < query_count) out[row + 8 * r] = of_row;
  }
}

template <int kGroups, int kCluster>
__global__ void __launch_bounds__(kGroups* kWarpgroup + 32, 2 / kGroups)
    similarity_kernel(const bf16* queries, const __grid_constant__ CUtensorMap keys, float* out,
                      int query_count, int key_count) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Ring& ring = *reinterpret_cast<Ring*>(memory);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&ring.full[s], 1);
      ptx::mbarrier_init(&ring.empty[s], kCluster * kGroups * 4);  // one arrival of each consumer warp
    }
    ptx::fence_mbarrier_init();  // TMA, and the cluster after its barrier, see the barriers
  }
  __syncthreads();  // and so do the other threads
  if constexpr (kCluster > 1) {
    // No CTA may send to another before that has its ring.
    ptx::cluster_barrier_arrive();
    ptx::cluster_barrier_wait();
  }

  const int tiles = (key_count + kKeys - 1) / kKeys;
  if (threadIdx.x / 32 == kGroups * 4) {
    if (threadIdx.x % 32 == 0) produce<kCluster>(keys, ring, tiles);
    __syncwarp();  // the cluster barrier wants the warp together
  } else {
    consume<kCluster>(queries, out, query_count, key_count, ring, tiles);
    __syncwarp();
  }
  if constexpr (kCluster > 1) {
    // A CTA that has left could still get arrivals on its barriers from consumers of the others.
    ptx::cluster_barrier_arrive();
    ptx::cluster_barrier_wait();
  }
}

template <int kGroups, int kCluster>
void launch_similarity(const Similarity& p, StreamRef stream) {
  FATHOM_EXPECT(p.queries.extent(0) <= INT32_MAX / 2 && p.keys.extent(0) <= INT32_MAX / 2,
                "the kernel counts in 32 bits");
  if (p.out.size() == 0) return;
  constexpr auto* kKernel = similarity_kernel<kGroups, kCluster>;
  allow_shared_memory_once<kKernel>(sizeof(Ring));
  const CUtensorMap keys = tensor_map(p.keys.data(), DType::bf16, p.keys.extent(0), kDims, kDims * 2,
                                      kKeys / kCluster, kHalfDims, Swizzle::bytes_128);
  // Whole clusters: queries beyond the last are zeros, and are not stored.
  const unsigned grid = blocks_for(p.out.size(), kGroups * kRows * kCluster) * kCluster;
  launch_in_clusters(kKernel, dim3(grid), dim3(kGroups * kWarpgroup + 32), sizeof(Ring), kCluster, stream,
                     p.queries.data(), keys, p.out.data(), static_cast<int>(p.queries.extent(0)),
                     static_cast<int>(p.keys.extent(0)));
}

}  // namespace fathom::lab::cluster_multicast
