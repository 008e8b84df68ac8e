// Items are (groups of W, rows of x). Where they are fewer than the multiprocessors could take, several
// blocks share one, each a part of K, and add up through each other's shared memory. Main loop, flops and
// bytes: packed_many.cuh.
//
// A row's result depends on its weights and on itself, and on how many parts there are: one order of
// summation for all rows of a call. The parts follow from T and the GPU, or, for SumOrder::one, from the GPU
// alone.
#include <algorithm>
#include <array>

#include "core/expect.h"
#include "kernels/packed_epilogue.cuh"
#include "kernels/packed_linear.cuh"
#include "kernels/packed_many.cuh"

namespace fathom::kernels {
namespace {

using namespace many;

template <class S>
class DenseWork {
 public:
  static constexpr bool kKnown = true;
  struct Shared {};

  DenseWork(const PackedMatrix& w, int64_t rows, int parts)
      : groups_(static_cast<int>(w.rows / kTile)),
        depth_(static_cast<int>(w.depth / kTile)),
        rows_(static_cast<int>(rows)),
        parts_(parts),
        weights_stay_(w.bytes() < rows * w.depth * 2) {}

  __host__ __device__ int down() const { return (groups_ + S::kGroups - 1) / S::kGroups; }
  __host__ __device__ int across() const { return (rows_ + S::kColumns - 1) / S::kColumns; }
  __host__ __device__ int count() const { return down() * across(); }

  __device__ int first() const { return blockIdx.x / parts_; }
  __device__ int step() const { return gridDim.x / parts_; }
  __device__ int part() const { return blockIdx.x % parts_; }
  __device__ int parts() const { return parts_; }

  // The smaller of W and x stays in the L2 cache, the other one goes by once.
  __device__ Item item(int i) const {
    const int group = (weights_stay_ ? i % down() : i / across()) * S::kGroups;
    const int row   = (weights_stay_ ? i / down() : i % across()) * S::kColumns;
    return {.tile   = int64_t{group} * depth_,
            .depth  = depth_,
            .begin  = depth_ * part() / parts_,
            .end    = depth_ * (part() + 1) / parts_,
            .group  = group,
            .groups = min(S::kGroups, groups_ - group),
            .row    = row,
            .rows   = min(S::kColumns, rows_ - row),
            .expert = 0};
  }

 private:
  int groups_, depth_, rows_, parts_;
  bool weights_stay_;
};

template <class Store>
struct Same {
  Store store;

  __device__ Store of(const Item&) const { return store; }
};

// How many clusters of 1 to kMostParts blocks run at once.
template <class S, class Kernel>
std::array<int, kMostParts + 1> clusters_at_once(Kernel* kernel) {
  allow_shared_memory(kernel, kRingBytes<S, DenseTiles>);
  std::array<int, kMostParts + 1> clusters = {0, S::kBlocks * multiprocessors()};
  for (int parts = 2; parts <= kMostParts; ++parts) {
    cudaLaunchAttribute attribute = {};
    attribute.id                  = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim      = {static_cast<unsigned>(parts), 1, 1};
    cudaLaunchConfig_t config     = {};
    config.gridDim                = static_cast<unsigned>(parts);
    config.blockDim               = S::kThreads;
    config.dynamicSmemBytes       = kRingBytes<S, DenseTiles>;
    config.attrs                  = &attribute;
    config.numAttrs               = 1;
    FATHOM_CUDA(cudaOccupancyMaxActiveClusters(&clusters[static_cast<size_t>(parts)], kernel, &config));
  }
  return clusters;
}

// As many as keep all multiprocessors busy when one row is multiplied, where parts matter most.
template <class S>
int parts_for_any_rows(const PackedMatrix& w) {
  const int64_t busy = multiprocessors() / DenseWork<S>(w, 1, 1).count();
  return static_cast<int>(std::clamp<int64_t>(busy, 1, std::min<int64_t>(kMostParts, w.depth / kTile)));
}

template <class S, class Store>
void launch_dense(View<const bf16, 2> x, const PackedMatrix& w, const Store& store, SumOrder order,
                  StreamRef stream) {
  static const auto clusters = clusters_at_once<S>(products_kernel<S, DenseTiles, DenseWork<S>, Same<Store>>);
  const int64_t items        = DenseWork<S>(w, x.extent(0), 1).count();
  int parts                  = order == SumOrder::one ? parts_for_any_rows<S>(w) : 1;
  if (order == SumOrder::by_rows)
    for (int more = 2; more <= std::min<int64_t>(kMostParts, w.depth / kTile); ++more)
      if (items <= clusters[static_cast<size_t>(more)]) parts = more;
  launch_products<S>(x, DenseTiles{w.tiles}, DenseWork<S>(w, x.extent(0), parts), Same<Store>{store},
                     parts > 1 ? items * parts : std::min<int64_t>(items, clusters[1]), parts, stream);
}

template <class Store>
void launch_for_rows(View<const bf16, 2> x, const PackedMatrix& w, const Store& store, SumOrder order,
                     StreamRef stream) {
  const int64_t rows = x.extent(0);
  FATHOM_EXPECT(x.extent(1) == w.depth, "products of many rows: x is [T, padded depth of the weights]");
  if (rows == 0) return;
  if (rows <= 16) return launch_dense<Shape<16, 3, 1, 1, 8, 1>>(x, w, store, order, stream);
  if (rows <= 32) return launch_dense<Shape<32, 3, 1, 1, 7, 1>>(x, w, store, order, stream);
  if (rows <= 64) return launch_dense<Shape<64, 3, 1, 1, 6, 1>>(x, w, store, order, stream);
  launch_dense<Shape<128, 3, 1, 1, 5, 1>>(x, w, store, order, stream);
}

template <bool kAdd>
void launch_rows(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, SumOrder order,
                 StreamRef stream) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) <= w.rows && y.stride(1) == 1,
                "products of many rows: y is [T, rows of the weights]");
  launch_for_rows(x, w,
                  StoreRows<kAdd>{.y = y.data(), .stride = y.stride(0), .rows = y.extent(1), .bias = w.bias},
                  order, stream);
}

}  // namespace

void project_heads_many(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to, StreamRef stream,
                        SumOrder order) {
  std::visit([&](const auto& kv) { launch_for_rows(x, w, store_heads(x, w, to, kv), order, stream); }, to.kv);
}

void project_add_many(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                      SumOrder order) {
  launch_rows<true>(x, w, y, order, stream);
}

void project_many(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream,
                  SumOrder order) {
  launch_rows<false>(x, w, y, order, stream);
}

}  // namespace fathom::kernels
