// Dense products of many rows. A work tile is (groups of W, rows of x). Where there are fewer tiles than the
// multiprocessors can take, the CTAs of a cluster split K between them (split-K) and add up through
// distributed shared memory. Main loop, bytes and flops: wgmma_mainloop.cuh.
//
// A row's result depends on the row, on the weights and on the cluster size, which sets the order of
// summation for all rows of a call. The cluster size follows from T and the GPU, or, for SumOrder::one, from
// the GPU alone.
#include <algorithm>
#include <array>

#include "core/expect.h"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"
#include "kernels/attention/fused_rope_kv_write.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/gemm/wgmma_mainloop.cuh"

namespace fathom::kernels {
namespace {

using namespace wgmma_gemm;

template <class S>
class DenseTileScheduler {
 public:
  static constexpr bool kTilesKnownOnHost = true, kMaySplitK = true;
  struct Shared {};

  DenseTileScheduler(const PackedMatrix& w, int64_t rows, int splits)
      : groups_(static_cast<int>(w.rows / kTile)),
        depth_(static_cast<int>(w.depth / kTile)),
        rows_(static_cast<int>(rows)),
        splits_(splits),
        weights_stay_in_l2_(w.bytes() < rows * w.depth * 2) {}

  __host__ __device__ int row_tiles() const { return (groups_ + S::kGroups - 1) / S::kGroups; }
  __host__ __device__ int column_tiles() const { return (rows_ + S::kColumns - 1) / S::kColumns; }
  __host__ __device__ int count() const { return row_tiles() * column_tiles(); }

  __device__ int first() const { return blockIdx.x / splits_; }
  __device__ int step() const { return gridDim.x / splits_; }
  __device__ int split() const { return blockIdx.x % splits_; }
  __device__ int splits() const { return splits_; }

  // The smaller of W and x stays in the L2 cache; the other is read once.
  __device__ WorkTile tile(int i) const {
    const int group = (weights_stay_in_l2_ ? i % row_tiles() : i / column_tiles()) * S::kGroups;
    const int row   = (weights_stay_in_l2_ ? i / row_tiles() : i % column_tiles()) * S::kColumns;
    return {.first_weight_tile = int64_t{group} * depth_,
            .depth             = depth_,
            .begin             = depth_ * split() / splits_,
            .end               = depth_ * (split() + 1) / splits_,
            .group             = group,
            .groups            = min(S::kGroups, groups_ - group),
            .row               = row,
            .rows              = min(S::kColumns, rows_ - row),
            .expert            = 0};
  }

 private:
  int groups_, depth_, rows_, splits_;
  bool weights_stay_in_l2_;
};

template <class Epilogue>
struct SameEpilogue {
  struct Shared {};

  Epilogue epilogue;

  template <class>
  __device__ Epilogue of(const WorkTile&, Shared&) const {
    return epilogue;
  }
};

// How many clusters of 1 to kMaxSplitK CTAs run at once on the current GPU.
template <class S, class Kernel>
std::array<int, kMaxSplitK + 1> max_active_clusters(Kernel* kernel) {
  allow_shared_memory(kernel, kPipelineBytes<S, DenseTiles>);
  std::array<int, kMaxSplitK + 1> clusters = {0, S::kCtasPerSm * multiprocessors()};
  for (int splits = 2; splits <= kMaxSplitK; ++splits) {
    cudaLaunchAttribute attribute = {};
    attribute.id                  = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim      = {static_cast<unsigned>(splits), 1, 1};
    cudaLaunchConfig_t config     = {};
    config.gridDim                = static_cast<unsigned>(splits);
    config.blockDim               = S::kThreads;
    config.dynamicSmemBytes       = kPipelineBytes<S, DenseTiles>;
    config.attrs                  = &attribute;
    config.numAttrs               = 1;
    FATHOM_CUDA(cudaOccupancyMaxActiveClusters(&clusters[static_cast<size_t>(splits)], kernel, &config));
  }
  return clusters;
}

// Enough to give every multiprocessor a CTA when T is 1, where split-K matters most.
template <class S>
int splits_for_any_rows(const PackedMatrix& w) {
  const int64_t ctas_per_tile = multiprocessors() / DenseTileScheduler<S>(w, 1, 1).count();
  return static_cast<int>(
      std::clamp<int64_t>(ctas_per_tile, 1, std::min<int64_t>(kMaxSplitK, w.depth / kTile)));
}

template <class S, class Epilogue>
void launch_dense(View<const bf16, 2> x, const PackedMatrix& w, const Epilogue& epilogue, SumOrder order,
                  StreamRef stream) {
  static PerDevice<std::array<int, kMaxSplitK + 1>> of_gpu;
  const auto clusters = of_gpu.get([] {
    return max_active_clusters<S>(
        wgmma_gemm_kernel<S, DenseTiles, DenseTileScheduler<S>, SameEpilogue<Epilogue>>);
  });
  const int64_t tiles = DenseTileScheduler<S>(w, x.extent(0), 1).count();
  int splits          = order == SumOrder::one ? splits_for_any_rows<S>(w) : 1;
  if (order == SumOrder::by_rows)
    for (int size = 2; size <= std::min<int64_t>(kMaxSplitK, w.depth / kTile); ++size)
      if (tiles <= clusters[static_cast<size_t>(size)]) splits = size;
  launch_gemm<S>(x, DenseTiles{w.tiles}, DenseTileScheduler<S>(w, x.extent(0), splits),
                 SameEpilogue<Epilogue>{epilogue},
                 splits > 1 ? tiles * splits : std::min<int64_t>(tiles, clusters[1]), splits, stream);
}

// How long the multiprocessors take, in rows of x: those of a work tile for each wave of CTAs.
template <class S>
int64_t wave_rows(const PackedMatrix& w, int64_t rows) {
  const int64_t tiles = DenseTileScheduler<S>(w, rows, 1).count(), at_once = multiprocessors();
  return (tiles + at_once - 1) / at_once * S::kColumns;
}

template <class Epilogue>
void launch_for_rows(View<const bf16, 2> x, const PackedMatrix& w, const Epilogue& epilogue, SumOrder order,
                     StreamRef stream) {
  const int64_t rows = x.extent(0);
  FATHOM_EXPECT(x.extent(1) == w.depth, "linear_gemm: x is [T, padded depth of the weights]");
  if (rows == 0) return;
  if (rows <= 16) return launch_dense<TileShape<16, 3, 1, 1, 8, 1>>(x, w, epilogue, order, stream);
  if (rows <= 32) return launch_dense<TileShape<32, 3, 1, 1, 7, 1>>(x, w, epilogue, order, stream);
  if (rows <= 64) return launch_dense<TileShape<64, 3, 1, 1, 6, 1>>(x, w, epilogue, order, stream);
  // For a product, tiles of 192 rows take four fifths of the bytes from L2 that tiles of 128 rows take: 42 a
  // clock of a multiprocessor instead of 53, where all together get about 46 each. So the latter have to win
  // more than a wave is shorter.
  using ManyRows  = TileShape<192, 3, 1, 1, 4, 1>;
  using FullWaves = TileShape<128, 3, 1, 1, 5, 1>;
  if (rows <= 256 || 10 * wave_rows<FullWaves>(w, rows) < 9 * wave_rows<ManyRows>(w, rows))
    return launch_dense<FullWaves>(x, w, epilogue, order, stream);
  launch_dense<ManyRows>(x, w, epilogue, order, stream);
}

template <bool kAdd>
void launch_rows(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, SumOrder order,
                 StreamRef stream) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) <= w.rows && y.stride(1) == 1,
                "linear_gemm: y is [T, rows of the weights]");
  launch_for_rows(
      x, w, LinearEpilogue<kAdd>{.y = y.data(), .stride = y.stride(0), .rows = y.extent(1), .bias = w.bias},
      order, stream);
}

}  // namespace

void qkv_rope_gemm(View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to, StreamRef stream,
                   SumOrder order) {
  with_kv_writer(to.kv, [&](const auto& kv) {
    launch_for_rows(x, w, rope_kv_write_epilogue(x, w, to, kv), order, stream);
  });
}

void linear_add_gemm(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                     SumOrder order) {
  launch_rows<true>(x, w, y, order, stream);
}

void linear_gemm(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                 SumOrder order) {
  launch_rows<false>(x, w, y, order, stream);
}

}  // namespace fathom::kernels
