// Products of up to 8 rows: each weight is read once, by one warp, from memory straight into the registers of
// an mma.sync fragment.
//
// bytes   2 N K of weights once, whatever T
// flops   2 T N K
// limit   memory bandwidth. A multiprocessor needs some 30 KB in flight all the time to get its share.
// idea    A warp works on strips: 16 packed rows by 32 columns, of which a lane loads two pieces of 16 bytes.
//         Each warp has several strips in flight, the first of them before the previous kernel has ended. x
//         lies in shared memory with its rows 16 bytes apart modulo 128, so that ldmatrix has no bank
//         conflicts. K is split over warps. Their sums are always added in the same order, so that a row's
//         result depends on nothing but the row and the weights.
//
// There are two kernels. A matrix of many rows (the unembedding) gives each CTA a row of 64 x 64 tiles and
// all of K. For fewer rows that would make too few CTAs, each waiting for all of x: there a cluster of 8 CTAs
// splits K (split-K), so that a CTA needs an eighth of x, and the CTAs exchange sums through distributed
// shared memory.
#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "kernels/alignment.h"
#include "kernels/attention/fused_rope_kv_write.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/linear_gemv.cuh"
#include "kernels/gemm/linear_gpu.h"

namespace fathom::kernels {
namespace {

using namespace gemv;

// ---- many rows of weights: a CTA has a row of tiles and all of K ----

namespace full_k {

constexpr int kWarps = kFullKWarps, kThreads = 32 * kWarps;
constexpr int kSumBytes = kWarps * kTileGroups * kSums * int{sizeof(float4)};

template <class Epilogue>
__global__ void __launch_bounds__(kThreads, 4) linear_gemv_kernel(Product product, Epilogue epilogue) {
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int tile_row = static_cast<int>(blockIdx.x), strips = product.depth / kStrip;

  // The warp computes strips warp, warp + kWarps, .. of all four groups.
  constexpr int kStep = kWarps / 2 * PackedMatrix::kTileBytes;
  const uint8_t* next = product.strip(tile_row, 0, warp, lane);
  Strip weights[kTileGroups];
#pragma unroll
  for (int g = 0; g < kTileGroups; ++g)
    if (warp < strips) weights[g].load(next + g * kGroupBytes);

  ptx::griddepcontrol_wait();
  const SharedRows x(shared, product.depth / 8);
  x.load<kThreads>(product, 0, warp * 32 + lane);
  uint32_t x_at = x.address(product.rows, warp, lane);

  float sum[kTileGroups][4] = {};
  for (int strip = warp; strip < strips; strip += kWarps) {
    uint32_t columns[4];
    ptx::ldmatrix_x4(columns, x_at);
    x_at += kWarps * kStrip * 2;
    next += kStep;
#pragma unroll
    for (int g = 0; g < kTileGroups; ++g) {
      weights[g].multiply(columns, sum[g]);
      if (strip + kWarps < strips) weights[g].load(next + g * kGroupBytes);
    }
  }
  ptx::griddepcontrol_launch_dependents();

  float4* sums = reinterpret_cast<float4*>(x.end(product.rows));  // [kWarps][kTileGroups][kSums]
#pragma unroll
  for (int g = 0; g < kTileGroups; ++g)
    sums[(warp * kTileGroups + g) * kSums + lane] = {sum[g][0], sum[g][1], sum[g][2], sum[g][3]};
  __syncthreads();  // all sums are in shared memory
  if (warp >= kTileGroups) return;
  float4 total = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float4 part = sums[(w * kTileGroups + warp) * kSums + lane];
    total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
  }
  const int p = (tile_row * kTileGroups + warp) * 16 + lane / 4, t = lane % 4 * 2;
  if (t < product.rows) epilogue(p, t, total.x, total.z);
  if (t + 1 < product.rows) epilogue(p, t + 1, total.y, total.w);
}

template <class Epilogue>
void launch(const Product& product, const Epilogue& epilogue, StreamRef stream) {
  constexpr int kMaxShared = 208 << 10;
  allow_shared_memory_once<linear_gemv_kernel<Epilogue>>(kMaxShared);
  const int64_t bytes = shared_bytes_of_x(product.rows, product.depth) + kSumBytes;
  FATHOM_EXPECT(bytes <= kMaxShared, "linear_gemv: x must fit shared memory");
  launch_with_pdl(linear_gemv_kernel<Epilogue>, dim3(static_cast<unsigned>(product.tile_rows)),
                  dim3(32, kWarps), static_cast<size_t>(bytes), stream, product, epilogue);
}

}  // namespace full_k

// ---- fewer rows of weights: the CTAs of a cluster split K ----

namespace split_k {

constexpr int kClusterSize = 8;
constexpr int kParts       = 4;  // of a CTA's columns, one for each warp of a group
constexpr int kWarps = kTileGroups * kParts, kThreads = 32 * kWarps;
constexpr int kStripsInFlight = 4;  // of a warp
constexpr int kSenders        = kClusterSize * kParts;
// Clusters that run at once with two CTAs on each multiprocessor. The 132 multiprocessors of an H200 lie in
// groups that together hold 15 clusters of one CTA per multiprocessor.
constexpr int kResidentClusters = 30;
// Rows of tiles of a cluster, at most: what its CTAs have shared memory for.
constexpr int kMaxTileRows = 4;

constexpr int64_t kMinDepth = kSenders * kStrip;  // every warp has a strip

// Cluster c has rows of tiles per_cluster c .. per_cluster (c + 1). CTA i % kClusterSize adds up and stores
// group i of 16 rows among them.
template <class Epilogue>
__global__ void __launch_bounds__(kThreads, 2)
    linear_gemv_split_k_kernel(Product product, int per_cluster, Epilogue epilogue) {
  extern __shared__ uint4 shared[];
  __shared__ uint64_t received;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int thread = warp * 32 + lane, group = warp % kTileGroups, part = warp / kTileGroups;
  const int block     = static_cast<int>(blockIdx.x) % kClusterSize;
  const int first_row = static_cast<int>(blockIdx.x) / kClusterSize * per_cluster;
  const int tile_rows = min(per_cluster, product.tile_rows - first_row);
  const int mine =
      (tile_rows * kTileGroups - block + kClusterSize - 1) / kClusterSize;  // groups that this CTA stores
  if (thread == 0) {
    ptx::mbarrier_init(&received, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&received, mine * kSenders * kSums * int{sizeof(float4)});
  }
  __syncwarp();
  ptx::cluster_barrier_arrive();  // the other CTAs may send once they have waited

  // The CTA has strips first .. first + strips of K; the warp has those at part, part + kParts, ..
  const int all = product.depth / kStrip, first = block * all / kClusterSize;
  const int strips              = (block + 1) * all / kClusterSize - first,
            strips_per_tile_row = (strips - part + kParts - 1) / kParts;
  constexpr int kStep           = kParts / 2 * PackedMatrix::kTileBytes;
  const int to_next_tile_row =
      product.depth / kTile * PackedMatrix::kTileBytes - (strips_per_tile_row - 1) * kStep;
  const uint8_t* next = product.strip(first_row, group, first + part, lane);
  int unloaded = strips_per_tile_row * tile_rows, left_in_tile_row = strips_per_tile_row;
  const auto load_next = [&](Strip& strip) {
    if (unloaded == 0) return;
    --unloaded;
    strip.load(next);
    next += --left_in_tile_row == 0 ? to_next_tile_row : kStep;
    if (left_in_tile_row == 0) left_in_tile_row = strips_per_tile_row;
  };
  Strip weights[kStripsInFlight];
#pragma unroll
  for (int a = 0; a < kStripsInFlight; ++a) load_next(weights[a]);

  // Already here, not after the last loads: each multiprocessor has room for more CTAs than ours, so that the
  // next kernel fetches its first strips while this one adds up and ends (measured: a tenth of the time).
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const SharedRows x(shared, strips * (kStrip / 8));
  x.load<kThreads>(product, first * kStrip, thread);
  ptx::cluster_barrier_wait();  // the other CTAs' barriers are initialised

  // [groups to store][kSenders][kSums], at the same address in all CTAs, whatever their number of strips.
  float4* inbox = reinterpret_cast<float4*>(
      shared + shared_bytes_of_x(product.rows, (all / kClusterSize + 1) * kStrip) / 16);
  const int sender       = block * kParts + part;
  const uint32_t x_begin = x.address(product.rows, part, lane);
  uint32_t x_at          = x_begin;
  float sum[4]           = {};
  int left = strips_per_tile_row, to = group;
  for (int strip = 0; strip < strips_per_tile_row * tile_rows; strip += kStripsInFlight) {
#pragma unroll
    for (int a = 0; a < kStripsInFlight; ++a) {
      if (strip + a >= strips_per_tile_row * tile_rows) break;
      uint32_t columns[4];
      ptx::ldmatrix_x4(columns, x_at);
      x_at += kParts * kStrip * 2;
      weights[a].multiply(columns, sum);
      load_next(weights[a]);
      if (--left > 0) continue;
      // The end of a row of tiles: send its sums to the CTA that stores the group.
      const auto remote = [&](const void* object) {
        return ptx::mapa_shared_cluster(ptx::shared_address(object), to % kClusterSize);
      };
      ptx::st_async_v4(remote(inbox + (to / kClusterSize * kSenders + sender) * kSums + lane),
                       {sum[0], sum[1], sum[2], sum[3]}, remote(&received));
      left = strips_per_tile_row, x_at = x_begin, to += kTileGroups;
      sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
  }

  ptx::mbarrier_wait(&received, 0);  // all sums of this CTA's groups have arrived, so that it may exit
  for (int i = thread; i < mine * 2 * kSums; i += kThreads) {
    const int g = i / (2 * kSums), l = i % kSums, odd = i / kSums % 2, t = l % 4 * 2 + odd;
    if (t >= product.rows) continue;
    const float* partial = reinterpret_cast<const float*>(inbox + g * kSenders * kSums + l) + odd;
    float low = 0, high = 0;
#pragma unroll
    for (int s = 0; s < kSenders; ++s) low += partial[s * kSums * 4], high += partial[s * kSums * 4 + 2];
    epilogue((first_row * kTileGroups + g * kClusterSize + block) * 16 + l / 4, t, low, high);
  }
}

template <class Epilogue>
void launch(const Product& product, const Epilogue& epilogue, StreamRef stream) {
  constexpr int kMaxShared = 100 << 10;
  allow_shared_memory_once<linear_gemv_split_k_kernel<Epilogue>>(kMaxShared);
  const int per_cluster =
      std::min((product.tile_rows + kResidentClusters - 1) / kResidentClusters, kMaxTileRows);
  const int64_t to_store = (per_cluster * kTileGroups + kClusterSize - 1) / kClusterSize;
  const int64_t columns  = (product.depth / kStrip / kClusterSize + 1) * kStrip;
  const int64_t bytes =
      shared_bytes_of_x(product.rows, columns) + to_store * kSenders * kSums * int64_t{sizeof(float4)};
  FATHOM_EXPECT(bytes <= kMaxShared, "linear_gemv: x and the sums must fit shared memory");
  const int clusters = (product.tile_rows + per_cluster - 1) / per_cluster;
  launch_with_pdl(linear_gemv_split_k_kernel<Epilogue>, dim3(static_cast<unsigned>(clusters * kClusterSize)),
                  dim3(32, kWarps), static_cast<size_t>(bytes), kClusterSize, stream, product, per_cluster,
                  epilogue);
}

}  // namespace split_k

template <class Epilogue>
void launch(View<const bf16, 2> x, const PackedMatrix& w, const Epilogue& epilogue, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) >= 1 && x.extent(0) <= kMaxGemvRows && x.extent(1) == w.depth,
                "x is [T, K], T from 1 to 8, K the padded depth of the weights");
  FATHOM_EXPECT(x.stride(1) == 1 && x.stride(0) % 8 == 0 && aligned_to_16(x.data()),
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
  // The choice must not depend on T: it decides the order of summation.
  const bool is_full_k = w.rows >= kFullKRows || w.depth < split_k::kMinDepth;
  (is_full_k ? full_k::launch<Epilogue> : split_k::launch<Epilogue>)(product, epilogue, stream);
}

template <bool kAdd>
void launch_linear(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && padded(y.extent(1)) == w.rows && y.stride(1) == 1,
                "y is [T, rows of the checkpoint], its rows contiguous");
  launch(x, w, LinearEpilogue<kAdd>{y.data(), y.stride(0), y.extent(1), w.bias}, stream);
}

}  // namespace

void qkv_rope_gemv(View<const bf16, 2> x, const PackedMatrix& w, const QkvRopeOutput& to, StreamRef stream) {
  with_kv_writer(to.kv, [&](const auto& kv) { launch(x, w, rope_kv_write_epilogue(x, w, to, kv), stream); });
}

void linear_add_gemv(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  launch_linear<true>(x, w, y, stream);
}

void linear_gemv(View<const bf16, 2> x, const PackedMatrix& w, View<float, 2> y, StreamRef stream) {
  launch_linear<false>(x, w, y, stream);
}

}  // namespace fathom::kernels
