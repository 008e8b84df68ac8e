// d(i, j) = a_scales(i) b_scales(j) sum_l a(i, l) b(j, l)      e4m3 operands, d in bf16
//
// bytes   m k + n k + 2 m n + 4 (m + n)
// flops   2 m n k
// limit   tensor cores. H200: 1979 TFLOP/s at 1.83 GHz; power lowers the clock
// idea    the ring, the products and the order of tiles of gemm_sm90.cuh. Scales are read when a tile's sums
//         are complete: neither depends on k, so one multiplication for each number of D is all they cost
#include <algorithm>

#include "cuda/check.h"
#include "kernels/gemm/gemm_sm90.cuh"
#include "kernels/gemm/scaled_mm_fp8.h"

namespace fathom::kernels {
namespace {

using namespace gemm_sm90;

using S              = Shape<2, 256, 4, 2, E4m3>;
constexpr int kGroup = 4;  // that of gemm_fp8()

struct OuterScales {
  const float *a, *b;
  int rows, columns;  // m and n
};

// A tile in shared memory: the stages of A and of B, the boxes on their way to D, and the barriers.
struct Memory {
  uint8_t *a, *b, *boxes;
  uint64_t *full, *empty;

  __device__ explicit Memory(uint8_t* base)
      : a(base),
        b(a + S::kStages * S::kABytes),
        boxes(b + S::kStages * S::kBBytes),
        full(reinterpret_cast<uint64_t*>(boxes + S::kConsumers * S::kBoxes * S::kBoxBytes)),
        empty(full + S::kStages) {}
};

// Where a CTA's tile of the cluster `i` begins in D.
__device__ int tile_row(const TileOrder& order, int i, int rank) {
  return (order.row(i) * S::kCluster + rank) * S::kTileM;
}
__device__ int tile_column(const TileOrder& order, int i) { return order.column(i) * S::kTileN; }

// One thread fills the ring with all tiles of this CTA.
__device__ void produce(const CUtensorMap& a, const CUtensorMap& b, const Memory& memory, int k_blocks,
                        const TileOrder& order, int rank) {
  ptx::prefetch_tensormap(&a);
  ptx::prefetch_tensormap(&b);
  constexpr int kPartRows = S::kTileN / S::kCluster;  // of B, that this CTA loads for all
  PipelineState<S::kStages> state;
  for (int i = blockIdx.x / S::kCluster; i < order.count(); i += gridDim.x / S::kCluster)
    for (int k = 0; k < k_blocks; ++k, state.next()) {
      uint64_t* const barrier = &memory.full[state.stage];
      ptx::mbarrier_wait(&memory.empty[state.stage], state.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(barrier, S::kABytes + S::kBBytes);
      ptx::cp_async_bulk_tensor_load(memory.a + state.stage * S::kABytes, &a, tile_row(order, i, rank),
                                     k * S::kTileK, barrier);
      ptx::cp_async_bulk_tensor_load_multicast(memory.b + state.stage * S::kBBytes + rank * kPartRows * 128,
                                               &b, tile_column(order, i) + rank * kPartRows, k * S::kTileK,
                                               barrier, (1 << S::kCluster) - 1);
    }
  // The other CTA may still arrive here. This one exits when all its stages have been released by both.
  for (int s = 0; s < S::kStages; ++s, state.next())
    ptx::mbarrier_wait(&memory.empty[state.stage], state.parity ^ 1);
}

// `row`: the warpgroup's first one of D; `column`: the tile's. (The layout of sums: cuda/wgmma.cuh.)
template <bool kChannels>
__device__ void scale(float (&sums)[S::kTileN / 2], const OuterScales& scales, int row, int column) {
  if constexpr (kChannels) {
    const int lane     = threadIdx.x % 32;
    const int lane_row = row + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const float low    = scales.a[min(lane_row, scales.rows - 1)];
    const float high   = scales.a[min(lane_row + 8, scales.rows - 1)];
#pragma unroll
    for (int j = 0; j < S::kTileN / 8; ++j) {
      const int at    = min(column + 8 * j + lane % 4 * 2, scales.columns - 2);
      const float2 of = *reinterpret_cast<const float2*>(scales.b + at);
      sums[4 * j] *= low * of.x;
      sums[4 * j + 1] *= low * of.y;
      sums[4 * j + 2] *= high * of.x;
      sums[4 * j + 3] *= high * of.y;
    }
  } else {
    const float both = *scales.a * *scales.b;
#pragma unroll
    for (float& sum : sums) sum *= both;
  }
}

template <bool kChannels>
__global__ void __launch_bounds__(S::kThreads, 1)
    scaled_mm_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                     const __grid_constant__ CUtensorMap d, int k_blocks, TileOrder order,
                     OuterScales scales) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Memory memory(shared);
  const int warpgroup = threadIdx.x / 128;  // the last one produces
  const int rank      = ptx::cluster_ctarank();

  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&memory.full[s], 1);
      ptx::mbarrier_init(&memory.empty[s], S::kConsumers * S::kCluster);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_wait();  // the kernels before write a and its scales, and may read d
  // No CTA arrives on, or copies to, another one before that has its barriers.
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();

  if (warpgroup == S::kConsumers) {
    ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x == S::kConsumers * 128) produce(a, b, memory, k_blocks, order, rank);
    return;
  }

  ptx::setmaxnreg_inc<S::kConsumerRegisters>();
  const bool leader     = threadIdx.x % 128 == 0;
  uint8_t* const boxes  = memory.boxes + warpgroup * S::kBoxes * S::kBoxBytes;
  const uint32_t box_at = ptx::shared_address(boxes);
  const uint32_t a_at   = __shfl_sync(~0u, ptx::shared_address(memory.a) + warpgroup * (64 * 128), 0);
  // Thread r of a warpgroup tells CTA r of the cluster when a stage is free.
  Ring<S> ring{
      .full     = ptx::shared_address(memory.full),
      .a        = ptx::smem_descriptor_128b(a_at),
      .b        = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(memory.b), 0)),
      .released = ptx::mapa_shared_cluster(ptx::shared_address(memory.empty), threadIdx.x % S::kCluster),
      .releases = threadIdx.x % 128 < S::kCluster};

  float sums[S::kTileN / 2];
  int stored = 0;  // boxes
  for (int i = blockIdx.x / S::kCluster; i < order.count(); i += gridDim.x / S::kCluster) {
    const int row    = tile_row(order, i, rank) + warpgroup * 64;
    const int column = tile_column(order, i);
    multiply<S>(ring, k_blocks, sums);
    scale<kChannels>(sums, scales, row, column);
#pragma unroll
    for (int box = 0; box < S::kTileN / S::kBoxN; ++box, ++stored) {
      const int turn = stored % S::kBoxes;
      // TMA has read what this box held before; only the leader can know.
      if (leader) ptx::cp_async_bulk_wait_group_read<S::kBoxes - 1>();
      ptx::bar_sync(1 + warpgroup, 128);
      write_box<S::Output, S::kBoxN>(box_at + turn * S::kBoxBytes, sums, box);
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
      if (leader) {
        ptx::cp_async_bulk_tensor_store(&d, row, column + box * S::kBoxN, boxes + turn * S::kBoxBytes);
        ptx::cp_async_bulk_commit_group();
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

template <class T>
CUtensorMap map_of(View<T, 2> matrix, int box_rows, int box_columns) {
  constexpr int kBytes = sizeof(T);
  return tensor_map(matrix.data(), dtype_of<std::remove_const_t<T>>, matrix.extent(0), matrix.extent(1),
                    kBytes * matrix.extent(1), box_rows, box_columns, Swizzle::bytes_128, false);
}

template <bool kChannels>
void launch(View<const fp8_e4m3, 2> a, View<const fp8_e4m3, 2> b, View<bf16, 2> d, const OuterScales& scales,
            StreamRef stream) {
  const TileOrder order{static_cast<int>(blocks_for(scales.rows, S::kTileM * S::kCluster)),
                        static_cast<int>(blocks_for(scales.columns, S::kTileN)), kGroup};
  const int clusters = std::min(order.count(), multiprocessors() / S::kCluster);
  allow_shared_memory_once<scaled_mm_kernel<kChannels>>(S::kSharedBytes);
  launch_with_pdl(scaled_mm_kernel<kChannels>, dim3(static_cast<unsigned>(clusters * S::kCluster)),
                  dim3(S::kThreads), S::kSharedBytes, S::kCluster, stream, map_of(a, S::kTileM, S::kTileK),
                  map_of(b, S::kTileN / S::kCluster, S::kTileK), map_of(d, 64, S::kBoxN),
                  static_cast<int>(blocks_for(a.extent(1), S::kTileK)), order, scales);
}

}  // namespace

void scaled_mm_fp8(View<const fp8_e4m3, 2> a, View<const float, 1> a_scales, View<const fp8_e4m3, 2> b,
                   View<const float, 1> b_scales, View<bf16, 2> d, StreamRef stream) {
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  FATHOM_EXPECT(b.extent(1) == k && d.extent(0) == m && d.extent(1) == n && k > 0 && n % 8 == 0 &&
                    k % 16 == 0 && a.contiguous() && b.contiguous() && d.contiguous(),
                "scaled_mm_fp8 wants a (m x k), b (n x k), d (m x n) without gaps; k > 0, a multiple of 16; "
                "n a multiple of 8");
  FATHOM_EXPECT(std::max({m, n, k}) <= INT32_MAX / 2, "the kernel counts in 32 bits");
  if (d.size() == 0) return;
  const bool channels = a_scales.size() != 1 || b_scales.size() != 1;
  FATHOM_EXPECT(!channels || (a_scales.size() == m && b_scales.size() == n && a_scales.contiguous() &&
                              b_scales.contiguous() && reinterpret_cast<uintptr_t>(b_scales.data()) % 8 == 0),
                "scaled_mm_fp8 wants one scale for each operand, or m and n, those of b aligned to 8 bytes");
  const OuterScales scales{a_scales.data(), b_scales.data(), static_cast<int>(m), static_cast<int>(n)};
  channels ? launch<true>(a, b, d, scales, stream) : launch<false>(a, b, d, scales, stream);
}

}  // namespace fathom::kernels
