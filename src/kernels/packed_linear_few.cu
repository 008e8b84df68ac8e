// Products of up to 8 rows: every weight is read once, by one warp, from memory straight into the registers
// that the tensor cores take it from.
//
// bytes   2 N K of weights once, whatever T
// limit   memory bandwidth. A multiprocessor needs some 30 KB under way all the time to get its share.
// idea    Warps take strips: 16 packed rows, 32 columns, of which a lane's part are two loads of 16 bytes.
//         Each warp has several strips on the way, the first of them before the kernel in front of this one
//         has ended. x lies in shared memory, its rows apart by 16 bytes modulo 128, so that ldmatrix meets
//         no bank conflicts. K is split over warps; whoever adds up their sums does it in the same order
//         always, so that a row's result depends on nothing but it and the weights.
//
// There are two ways to divide the work. A tall matrix (the unembedding) has enough rows to give each block
// 64 of them and all of K. Where that made too few blocks, and each would wait for all of x, a cluster of 8
// shares K, so that a block wants an eighth of x, and its blocks send their sums to each other.
#include <algorithm>

#include "core/launch.cuh"
#include "core/ptx.cuh"
#include "kernels/packed_epilogue.cuh"
#include "kernels/packed_linear.cuh"

namespace fathom::kernels {
namespace {

constexpr int kStrip      = 32;  // columns
constexpr int kTileGroups = 4;   // groups of 16 rows of a tile
constexpr int kGroupBytes = PackedMatrix::kTileBytes / kTileGroups, kStripBytes = kGroupBytes / 2;
constexpr int kSums = 32;  // a warp's sums of 16 packed rows and 8 rows of x, float4s

struct Product {
  const bf16* x;
  int64_t x_stride;
  int rows;  // of x
  const bf16* tiles;
  int tile_rows, depth;

  // Where a lane's part of a strip begins, of group `group` of a row of tiles.
  __device__ const uint8_t* strip(int tile_row, int group, int strip, int lane) const {
    const int64_t tile = int64_t{tile_row} * (depth / kTile) + strip / 2;
    return reinterpret_cast<const uint8_t*>(tiles) + tile * PackedMatrix::kTileBytes + group * kGroupBytes +
           strip % 2 * kStripBytes + lane * 16;
  }
};

// A lane's part of a strip.
struct Strip {
  uint4 steps[2];

  __device__ void load(const uint8_t* from) {
    steps[0] = ptx::load_once(from);
    steps[1] = ptx::load_once(from + kStripBytes / 2);
  }

  // sum += strip x, with x as ldmatrix has it.
  __device__ void multiply(const uint32_t (&x)[4], float (&sum)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
      ptx::mma_16x8x16(sum, {steps[s].x, steps[s].y, steps[s].z, steps[s].w}, {x[2 * s], x[2 * s + 1]});
  }
};

// Some columns of the rows of x in shared memory, `pieces` of 16 bytes of each row.
class SharedRows {
 public:
  __device__ SharedRows(uint4* shared, int pieces) : shared_(shared), pieces_(pieces) {}

  // By all threads of a block; returns when all have their part.
  template <int kThreads>
  __device__ void load(const Product& product, int first_column, int thread) const {
    for (int i = thread; i < product.rows * pieces_; i += kThreads) {
      const int t = i / pieces_, p = i % pieces_;
      ptx::cp_async_16(shared_ + t * stride() + p, product.x + t * product.x_stride + first_column + p * 8);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();  // all threads' pieces are there
  }

  // What a lane gives ldmatrix for strip `strip`. Columns of the product behind the last have its numbers,
  // and are not stored.
  __device__ uint32_t address(int rows, int strip, int lane) const {
    return ptx::shared_address(shared_ + min(lane % 8, rows - 1) * stride() + strip * (kStrip / 8) +
                               lane / 8);
  }

  __device__ uint4* end(int rows) const { return shared_ + rows * stride(); }

 private:
  __device__ int stride() const { return pieces_ + 1; }

  uint4* shared_;
  int pieces_;
};

FATHOM_HD constexpr int64_t shared_bytes_of_x(int64_t rows, int64_t columns) {
  return rows * (2 * columns + 16);
}

// ---- a tall matrix: a block has a row of tiles ----

namespace tall {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kSumBytes = kWarps * kTileGroups * kSums * int{sizeof(float4)};

template <class Store>
__global__ void __launch_bounds__(kThreads, 4) tall_kernel(Product product, Store store) {
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int tile_row = static_cast<int>(blockIdx.x), strips = product.depth / kStrip;

  // The warp has strips warp, warp + kWarps, .. of all four groups.
  constexpr int kStep = kWarps / 2 * PackedMatrix::kTileBytes;
  const uint8_t* next = product.strip(tile_row, 0, warp, lane);
  Strip weights[kTileGroups];
#pragma unroll
  for (int g = 0; g < kTileGroups; ++g)
    if (warp < strips) weights[g].load(next + g * kGroupBytes);

  ptx::wait_for_previous();
  const SharedRows x(shared, product.depth / 8);
  x.load<kThreads>(product, 0, warp * 32 + lane);
  uint32_t x_at = x.address(product.rows, warp, lane);

  float sum[kTileGroups][4] = {};
  for (int strip = warp; strip < strips; strip += kWarps) {
    uint32_t columns[4];
    ptx::load_matrices(columns, x_at);
    x_at += kWarps * kStrip * 2;
    next += kStep;
#pragma unroll
    for (int g = 0; g < kTileGroups; ++g) {
      weights[g].multiply(columns, sum[g]);
      if (strip + kWarps < strips) weights[g].load(next + g * kGroupBytes);
    }
  }
  ptx::let_next_begin();

  float4* sums = reinterpret_cast<float4*>(x.end(product.rows));  // [kWarps][kTileGroups][kSums]
#pragma unroll
  for (int g = 0; g < kTileGroups; ++g)
    sums[(warp * kTileGroups + g) * kSums + lane] = {sum[g][0], sum[g][1], sum[g][2], sum[g][3]};
  __syncthreads();  // all sums are there
  if (warp >= kTileGroups) return;
  float4 total = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float4 part = sums[(w * kTileGroups + warp) * kSums + lane];
    total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
  }
  const int p = (tile_row * kTileGroups + warp) * 16 + lane / 4, t = lane % 4 * 2;
  if (t < product.rows) store(p, t, total.x, total.z);
  if (t + 1 < product.rows) store(p, t + 1, total.y, total.w);
}

template <class Store>
void launch(const Product& product, const Store& store, StreamRef stream) {
  constexpr int kMaxShared  = 208 << 10;
  static const bool allowed = (allow_shared_memory(tall_kernel<Store>, kMaxShared), true);
  static_cast<void>(allowed);
  const int64_t bytes = shared_bytes_of_x(product.rows, product.depth) + kSumBytes;
  FATHOM_EXPECT(bytes <= kMaxShared, "a product of few rows holds them in shared memory");
  launch_chained(tall_kernel<Store>, dim3(static_cast<unsigned>(product.tile_rows)), dim3(32, kWarps),
                 static_cast<size_t>(bytes), stream, product, store);
}

}  // namespace tall

// ---- others: the blocks of a cluster share K ----

namespace split {

constexpr int kBlocks = 8;  // of a cluster
constexpr int kParts  = 4;  // of a block's columns
constexpr int kWarps = kTileGroups * kParts, kThreads = 32 * kWarps;
constexpr int kAhead   = 4;  // strips on the way
constexpr int kSenders = kBlocks * kParts;
// So many clusters are there at once, two blocks on each multiprocessor: the 132 of an H200 lie in groups
// that hold 15 clusters of one block each.
constexpr int kClusters = 30;
constexpr int kMostRows = 4;  // of tiles, for a cluster: what its blocks have room for

constexpr int64_t kMinDepth = kSenders * kStrip;  // for each warp to have a strip

// The cluster has rows of tiles per_cluster b .. per_cluster (b + 1). Their groups of 16 rows, counted
// through, are added up and stored by block (group % kBlocks).
template <class Store>
__global__ void __launch_bounds__(kThreads, 2) split_kernel(Product product, int per_cluster, Store store) {
  extern __shared__ uint4 shared[];
  __shared__ uint64_t received;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int thread = warp * 32 + lane, group = warp % kTileGroups, part = warp / kTileGroups;
  const int block     = static_cast<int>(blockIdx.x) % kBlocks;
  const int first_row = static_cast<int>(blockIdx.x) / kBlocks * per_cluster;
  const int tile_rows = min(per_cluster, product.tile_rows - first_row);
  const int mine      = (tile_rows * kTileGroups - block + kBlocks - 1) / kBlocks;  // groups, to store
  if (thread == 0) {
    ptx::mbarrier_init(&received, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&received, mine * kSenders * kSums * int{sizeof(float4)});
  }
  __syncwarp();
  ptx::cluster_arrive();  // others may send once they have waited

  // The block has strips first .. first + strips of K, the warp those at part, part + kParts, ..
  const int all = product.depth / kStrip, first = block * all / kBlocks;
  const int strips = (block + 1) * all / kBlocks - first, of_row = (strips - part + kParts - 1) / kParts;
  constexpr int kStep   = kParts / 2 * PackedMatrix::kTileBytes;
  const int to_next_row = product.depth / kTile * PackedMatrix::kTileBytes - (of_row - 1) * kStep;
  const uint8_t* next   = product.strip(first_row, group, first + part, lane);
  int unloaded = of_row * tile_rows, left_of_row = of_row;
  const auto load_next = [&](Strip& strip) {
    if (unloaded == 0) return;
    --unloaded;
    strip.load(next);
    next += --left_of_row == 0 ? to_next_row : kStep;
    if (left_of_row == 0) left_of_row = of_row;
  };
  Strip weights[kAhead];
#pragma unroll
  for (int a = 0; a < kAhead; ++a) load_next(weights[a]);

  // Now, not behind our last loads: each multiprocessor has room for more blocks than ours, and the next
  // kernel's first strips come while we add up and end (measured: a tenth of the time).
  ptx::let_next_begin();
  ptx::wait_for_previous();
  const SharedRows x(shared, strips * (kStrip / 8));
  x.load<kThreads>(product, first * kStrip, thread);
  ptx::cluster_wait();  // the others' barriers can be used

  // [groups to store][kSenders][kSums], at the same place in all blocks, whatever their number of strips.
  float4* inbox =
      reinterpret_cast<float4*>(shared + shared_bytes_of_x(product.rows, (all / kBlocks + 1) * kStrip) / 16);
  const int sender        = block * kParts + part;
  const uint32_t x_of_row = x.address(product.rows, part, lane);
  uint32_t x_at           = x_of_row;
  float sum[4]            = {};
  int left = of_row, to = group;
  for (int strip = 0; strip < of_row * tile_rows; strip += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (strip + a >= of_row * tile_rows) break;
      uint32_t columns[4];
      ptx::load_matrices(columns, x_at);
      x_at += kParts * kStrip * 2;
      weights[a].multiply(columns, sum);
      load_next(weights[a]);
      if (--left > 0) continue;
      // The end of a row of tiles.
      const auto there = [&](const void* object) {
        return ptx::address_in_block(ptx::shared_address(object), to % kBlocks);
      };
      ptx::store_to_block(there(inbox + (to / kBlocks * kSenders + sender) * kSums + lane),
                          {sum[0], sum[1], sum[2], sum[3]}, there(&received));
      left = of_row, x_at = x_of_row, to += kTileGroups;
      sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
  }

  ptx::mbarrier_wait(&received, 0);  // all sums of our groups are there; nobody sends more, so we may leave
  for (int i = thread; i < mine * 2 * kSums; i += kThreads) {
    const int g = i / (2 * kSums), l = i % kSums, odd = i / kSums % 2, t = l % 4 * 2 + odd;
    if (t >= product.rows) continue;
    const float* part_of = reinterpret_cast<const float*>(inbox + g * kSenders * kSums + l) + odd;
    float low = 0, high = 0;
#pragma unroll
    for (int s = 0; s < kSenders; ++s) low += part_of[s * kSums * 4], high += part_of[s * kSums * 4 + 2];
    store((first_row * kTileGroups + g * kBlocks + block) * 16 + l / 4, t, low, high);
  }
}

template <class Store>
void launch(const Product& product, const Store& store, StreamRef stream) {
  constexpr int kMaxShared  = 100 << 10;
  static const bool allowed = (allow_shared_memory(split_kernel<Store>, kMaxShared), true);
  static_cast<void>(allowed);
  const int per_cluster  = std::min((product.tile_rows + kClusters - 1) / kClusters, kMostRows);
  const int64_t to_store = (per_cluster * kTileGroups + kBlocks - 1) / kBlocks;
  const int64_t columns  = (product.depth / kStrip / kBlocks + 1) * kStrip;
  const int64_t bytes =
      shared_bytes_of_x(product.rows, columns) + to_store * kSenders * kSums * int64_t{sizeof(float4)};
  FATHOM_EXPECT(bytes <= kMaxShared, "a product of few rows holds them and its sums in shared memory");
  const int clusters = (product.tile_rows + per_cluster - 1) / per_cluster;
  launch_chained(split_kernel<Store>, dim3(static_cast<unsigned>(clusters * kBlocks)), dim3(32, kWarps),
                 static_cast<size_t>(bytes), kBlocks, stream, product, per_cluster, store);
}

}  // namespace split

template <class Store>
void launch(View<const bf16, 2> x, const PackedMatrix& w, const Store& store, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) >= 1 && x.extent(0) <= kFewRows && x.extent(1) == w.depth,
                "x is [T, K], T from 1 to 8, K the padded depth of the weights");
  FATHOM_EXPECT(x.stride(1) == 1 && x.stride(0) % 8 == 0 && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0,
                "x has contiguous rows, 16-byte aligned");
  FATHOM_EXPECT(w.rows % kTile == 0 && w.rows > 0 && w.depth % kTile == 0 && w.depth > 0 &&
                    w.rows < 1 << 24 && w.depth < 1 << 16,
                "packed weights have whole tiles, under 2^24 rows and 2^16 columns");
  const Product product{x.data(),
                        x.stride(0),
                        static_cast<int>(x.extent(0)),
                        w.tiles,
                        static_cast<int>(w.rows / kTile),
                        static_cast<int>(w.depth)};
  // The way must not depend on T: it is the order of summation.
  const bool is_tall = w.rows >= 32768 || w.depth < split::kMinDepth;
  (is_tall ? tall::launch<Store> : split::launch<Store>)(product, store, stream);
}

template <bool kAdd>
void launch_rows(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && padded(y.extent(1)) == w.rows && y.stride(1) == 1,
                "y is [T, rows of the checkpoint], its rows contiguous");
  launch(x, w, StoreRows<kAdd>{y.data(), y.stride(0), y.extent(1), w.bias}, stream);
}

}  // namespace

void project_heads_few(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to,
                       StreamRef stream) {
  std::visit([&](const auto& kv) { launch(x, w, store_heads(x, w, to, kv), stream); }, to.kv);
}

void project_add_few(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  launch_rows<true>(x, w, y, stream);
}

void project_few(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  launch_rows<false>(x, w, y, stream);
}

}  // namespace fathom::kernels
