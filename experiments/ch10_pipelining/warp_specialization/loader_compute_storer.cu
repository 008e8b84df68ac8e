// logits(t, e) = sum_d x(t, d) w(e, d)        bf16, sums in fp32, 128 experts
//
// bytes   2 T D of x, once; from L2 also w once for each tile: 256 D
// flops   256 T D
// limit   DRAM bandwidth. H200: 65536 tokens of 2880 are 377 MB of x and 17 MB of logits, 0.09 ms at 4.5 TB/s
// idea    loader, compute and storer warps in CTAs that stay: a consumer group leaves its logits in shared
//         memory and goes on with the next tile, which the loader has begun to fetch, while the storer warp
//         sends them out by TMA
#include <algorithm>

#include "cuda/multiprocessors.h"
#include "tile.cuh"

namespace fathom::lab::warp_specialization {
namespace {

constexpr int kHalfExperts = 64;  // a swizzled row is 128 bytes, so the logits of a group are two boxes
constexpr int kOutBytes    = kRows * kExperts * 2;

// The sums of the calling warpgroup as bf16 in the layout of two boxes with the 128-byte swizzle: 16-byte
// piece c of row r is at c ^ (r % 8). A store of a warp covers all banks once.
__device__ void stage_rows(const Accumulator& sums, unsigned char* to) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 + g;  // g is row % 8
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < kExperts / 8; ++j) {
      const int half = j / 8, piece = j % 8 ^ g;
      *reinterpret_cast<uint32_t*>(to + half * kBoxBytes + (row + 8 * r) * kRowBytes + piece * 16 + 4 * t) =
          pack_bf16x2(sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1]);
    }
}

struct Barriers {
  uint64_t full[kMaxBuffers], empty[kMaxBuffers], ready[kMaxGroups], stored[kMaxGroups];
};
static_assert(sizeof(Barriers) <= kBarrierBytes);

__global__ void __launch_bounds__(kMaxGroups* kWarpgroup + 64)
    roles_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                 const __grid_constant__ CUtensorMap out, const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& [full, empty, ready, stored] = *reinterpret_cast<Barriers*>(memory);
  unsigned char* const ring          = memory + kBarrierBytes;  // the stages, and behind them the logits
  unsigned char* const logits        = ring + s.buffers * s.stage_bytes();
  const int warp = threadIdx.x / 32, consumers = s.groups * kWarpgroup / 32;
  if (threadIdx.x == 0) {
    for (int b = 0; b < kMaxBuffers; ++b) {
      ptx::mbarrier_init(&full[b], 1);
      ptx::mbarrier_init(&empty[b], consumers);
    }
    for (int g = 0; g < kMaxGroups; ++g) {
      ptx::mbarrier_init(&ready[g], kWarpgroup);
      ptx::mbarrier_init(&stored[g], 1);
    }
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads

  // The CTA's i-th tile is blockIdx.x + i * gridDim.x. Step n, counted over all of its tiles, is in stage
  // n % buffers, in that stage's phase n / buffers.
  const int mine = (s.tiles() - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                   static_cast<int>(gridDim.x);
  const auto tile = [&](int i) { return static_cast<int>(blockIdx.x + i * gridDim.x); };

  if (warp == consumers) {  // the loader
    if (threadIdx.x % 32 != 0) return;
    for (int n = 0; n < mine * s.steps; ++n) {
      const int stage = n % s.buffers;
      if (n >= s.buffers) ptx::mbarrier_wait(&empty[stage], (n / s.buffers - 1) & 1);
      load_step(s, x, w, tile(n / s.steps), n % s.steps, ring + stage * s.stage_bytes(), &full[stage]);
    }
  } else if (warp == consumers + 1) {  // the storer
    if (threadIdx.x % 32 != 0) return;
    for (int i = 0; i < mine; ++i)
      for (int g = 0; g < s.groups; ++g) {
        ptx::mbarrier_wait(&ready[g], i & 1);
        for (int half = 0; half < 2; ++half)
          ptx::cp_async_bulk_tensor_store(&out, tile(i) * s.tile_rows() + g * kRows, half * kHalfExperts,
                                          logits + g * kOutBytes + half * kBoxBytes);
        ptx::cp_async_bulk_commit_group();
        // TMA has read the logits: the group may overwrite them, and after the last tile the CTA may end.
        ptx::cp_async_bulk_wait_group_read<0>();
        ptx::mbarrier_arrive(&stored[g]);
      }
  } else {
    const int group = warp / (kWarpgroup / 32);
    for (int i = 0, n = 0; i < mine; ++i) {
      Accumulator sums;
      for (int step = 0; step < s.steps; ++step, ++n) {
        const int stage = n % s.buffers;
        ptx::mbarrier_wait(&full[stage], n / s.buffers & 1);
        multiply_step(s, sums, ptx::shared_address(ring + stage * s.stage_bytes()), step == 0);
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);  // the warp has left the stage
      }
      if (i > 0) ptx::mbarrier_wait(&stored[group], (i - 1) & 1);  // the logits of the last tile have gone
      stage_rows(sums, logits + group * kOutBytes);
      ptx::fence_proxy_async();  // TMA sees this thread's logits
      ptx::mbarrier_arrive(&ready[group]);
    }
  }
}

}  // namespace

void loader_compute_storer(const Router& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  const int bytes   = kBarrierBytes + s.buffers * s.stage_bytes() + s.groups * kOutBytes,
            threads = s.groups * kWarpgroup + 64;
  allow_shared_memory_once<roles_kernel>(kMostSharedBytes);
  int resident = 0;  // CTAs on a multiprocessor
  FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, roles_kernel, threads,
                                                            static_cast<size_t>(bytes)));
  const int grid        = std::min(s.tiles(), resident * multiprocessors());
  const CUtensorMap out = tensor_map(p.out.data(), DType::bf16, p.out.extent(0), kExperts, kExperts * 2,
                                     kRows, kHalfExperts, Swizzle::bytes_128);
  roles_kernel<<<static_cast<unsigned>(grid), static_cast<unsigned>(threads), static_cast<size_t>(bytes),
                 stream>>>(map_of_x(p), map_of_w(p), out, s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::warp_specialization
