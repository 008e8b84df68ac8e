// out(d, i) = sum over k < 8 of table(id(i, k), d)        rows of 32 fp32, the result by columns
//
// bytes   160 n    32 n of ids read + 128 n written, past the caches' use; and 1024 n of rows, out of L1, L2
//                  or shared memory
// flops   256 n
// limit   DRAM bandwidth if the rows cost nothing. H200: n = 2^21 moves 336 MB, 0.08 ms at 4 TB/s. The rows
//         are 2.1 GB: 0.07 ms from L1 or shared memory (128 bytes a cycle on each of 132 multiprocessors),
//         some 0.2 ms from L2
// idea    a warp takes 32 bags. Each lane loads the ids of one, and the warp then reads the rows of each, a
//         lane a column. The sums turn in a tile whose pitch of 33 words has no bank conflicts either way
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"
#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {
namespace {

constexpr int kPitch = kWidth + 1;

// Bags of a block, and its threads. The large table leaves room for one block only, so that has more warps.
template <Shared kShared>
constexpr int kBags = kShared == Shared::tile_and_table ? 384 : 256;
template <Shared kShared>
constexpr int kTileBytes      = kBags<kShared>* kPitch* static_cast<int>(sizeof(float));
constexpr int kMostTableBytes = 96 << 10;

template <Shared kShared, int kCarveout>
__global__ void __launch_bounds__(kBags<kShared>)
    embedding_bag_kernel(const int4* ids, const float* __restrict__ table, float* out, int n, int rows) {
  constexpr int kThreads = kBags<kShared>, kWarps = kThreads / 32;
  float* tile;
  const float* from = table;
  if constexpr (kShared == Shared::static_tile) {
    __shared__ float of_known_size[kThreads * kPitch];
    tile = of_known_size;
  } else {
    extern __shared__ float4 of_the_launch[];
    tile = reinterpret_cast<float*>(of_the_launch);
  }
  if constexpr (kShared == Shared::tile_and_table) {
    float4* copy = reinterpret_cast<float4*>(tile + kThreads * kPitch);
    for (int i = threadIdx.x; i < rows * kWidth / 4; i += kThreads)
      copy[i] = reinterpret_cast<const float4*>(table)[i];
    from = reinterpret_cast<const float*>(copy);
    __syncthreads();  // the table is complete before any thread reads it
  }

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = blockIdx.x * kThreads; first < n; first += gridDim.x * kThreads) {
    // Beyond the end a lane has row 0, whose sums nobody stores.
    const int mine = first + static_cast<int>(threadIdx.x);
    int4 a = {}, b = {};
    if (mine < n) {
      a = __ldcs(ids + 2 * int64_t{mine});
      b = __ldcs(ids + 2 * int64_t{mine} + 1);
    }
    const int id[kBag] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll 2
    for (int j = 0; j < 32; ++j) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kBag; ++k) sum += from[__shfl_sync(~0u, id[k], j) * kWidth + lane];
      tile[(32 * warp + j) * kPitch + lane] = sum;
    }
    __syncthreads();  // the tile is complete: a column of it was written by all warps
    for (int d = warp; d < kWidth; d += kWarps)
      for (int i = lane; i < kThreads && first + i < n; i += 32)
        __stcs(out + int64_t{d} * n + first + i, tile[i * kPitch + d]);
    __syncthreads();  // and read by all before the next turn's sums overwrite it
  }
}

}  // namespace

template <Shared kShared, int kCarveout>
void launch(const EmbeddingBag& p, StreamRef stream) {
  const int64_t n = p.id.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "bags are counted in 32 bits");
  if (n == 0) return;
  const auto kernel       = embedding_bag_kernel<kShared, kCarveout>;
  constexpr bool kDynamic = kShared != Shared::static_tile, kTable = kShared == Shared::tile_and_table;
  FATHOM_EXPECT(!kTable || p.table.bytes() <= kMostTableBytes, "the table must fit into shared memory");
  constexpr int kMostBytes = kDynamic ? kTileBytes<kShared> + (kTable ? kMostTableBytes : 0) : 0;
  static PerDevice<bool> asked;
  asked.get([&] {
    if (kMostBytes > 48 << 10)
      FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes));
    if (kCarveout != kDriversChoice)
      FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kCarveout));
    return true;
  });

  const int bytes = kDynamic ? kTileBytes<kShared> + (kTable ? static_cast<int>(p.table.bytes()) : 0) : 0;
  int each        = 0;
  FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kBags<kShared>, bytes));
  const unsigned needed   = blocks_for(n, kBags<kShared>);
  const auto resident     = static_cast<unsigned>(each * multiprocessors());
  const auto table_rows   = static_cast<int>(p.table.extent(0));
  const unsigned launched = needed < resident ? needed : resident;
  kernel<<<launched, kBags<kShared>, bytes, stream>>>(reinterpret_cast<const int4*>(p.id.data()),
                                                      p.table.data(), p.out.data(), static_cast<int>(n),
                                                      table_rows);
  FATHOM_LAUNCHED();
}

template void launch<Shared::static_tile, kDriversChoice>(const EmbeddingBag&, StreamRef);
template void launch<Shared::dynamic_tile, kDriversChoice>(const EmbeddingBag&, StreamRef);
template void launch<Shared::static_tile, kAllShared>(const EmbeddingBag&, StreamRef);
template void launch<Shared::static_tile, k132KiB>(const EmbeddingBag&, StreamRef);
template void launch<Shared::tile_and_table, kDriversChoice>(const EmbeddingBag&, StreamRef);

}  // namespace fathom::lab::shared_memory_carveout
