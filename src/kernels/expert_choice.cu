// y = rmsnorm(x) in bf16; logits = router y + bias; the top_k largest, and the softmax over those
//
// bytes   a row of H = 2880: x 11.5 KB, y 5.8 KB; the router's 184 KB (E = 32) for each 16 rows, from L2
// flops   2 E H a row, on tensor cores
// limit   DRAM bandwidth: 8192 rows move 142 MB, 33 us at 4.3 TB/s. Few rows: latency
// idea    a cluster of 8 blocks has 16 rows, and each of its 64 warps 48 columns of them, which lie in the
//         registers of its lanes as fragments of A (core/ptx.cuh) from the load to the product: lane 4 g + t
//         has columns 4 t .. 4 t + 3 of rows g and g + 8 of each 16 columns, and the same columns of the
//         router, fetched while the kernel before still runs. Two sums are over the whole row, those of its
//         squares and of the products: warps add up in their block, blocks store into the others' shared
//         memory. The products go to the block that chooses for the row: each does for two. With many rows a
//         cluster goes on to the next 16, whose x is on its way by then, and keeps its part of the router
#include <cuda_bf16.h>

#include <algorithm>

#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/ptx.cuh"
#include "kernels/expert_choice.h"

namespace fathom::kernels {
namespace {

constexpr int kBlocks     = 8;  // of a cluster
constexpr int kWarps      = 8;
constexpr int kThreads    = 32 * kWarps;
constexpr int kRows       = 16;  // of a cluster
constexpr int kOwn        = kRows / kBlocks;
constexpr int kUnit       = 16;  // columns of a fragment
constexpr int kUnits      = 3;   // of a warp
constexpr int kWidest     = kBlocks * kWarps * kUnits * kUnit;
constexpr int kGroup      = 32;  // experts
constexpr int kTiles      = kGroup / 8;
constexpr int kMostChosen = 8;
constexpr int kResident   = 2;  // blocks on a multiprocessor

struct Choose {
  const float* x;
  const float* weight;
  const bf16* router;
  const float* bias;
  const int32_t* positions;
  bf16* y;
  int32_t* experts;
  float* weights;
  int rows, width, num_experts, top_k;
  float eps;
};

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
// Rounded alike in every kernel, whatever the compiler would make of products that are added.
__device__ float square(float4 v) {
  return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmul_rn(v.x, v.x))));
}

// An unsigned number in the order of the floats; none is 0.
__device__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);  // -0 as 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ float value_of(uint32_t key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// By one warp: lane l has the keys of experts 32 i + l, 0 where there is none.
template <int kGroups>
__device__ void choose(const Choose& o, int64_t row, bool padding, uint32_t (&keys)[kGroups]) {
  const int lane  = threadIdx.x % 32;
  int32_t chosen  = -1;  // by lane k: the k-th
  float its_logit = 0, largest = 0;
  for (int k = 0; k < o.top_k; ++k) {
    uint32_t best = keys[0];
#pragma unroll
    for (int i = 1; i < kGroups; ++i) best = max(best, keys[i]);
    best         = __reduce_max_sync(~0u, best);
    uint32_t who = ~0u;
#pragma unroll
    for (int i = kGroups - 1; i >= 0; --i)
      if (keys[i] == best) who = i * kGroup + lane;
    who = __reduce_min_sync(~0u, who);
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
      if (who == i * kGroup + lane) keys[i] = 0;
    if (k == 0) largest = value_of(best);
    if (lane == k) {
      chosen    = static_cast<int32_t>(who);
      its_logit = value_of(best);
    }
  }
  const float mine = lane < o.top_k ? expf(its_logit - largest) : 0;
  float total      = mine;
#pragma unroll
  for (int other = kMostChosen / 2; other > 0; other /= 2) total += __shfl_xor_sync(~0u, total, other);
  if (lane >= o.top_k) return;
  o.experts[row * o.top_k + lane] = padding ? -1 : chosen;
  o.weights[row * o.top_k + lane] = padding ? 0 : mine / total;
}

// Clusters take kRows rows at a time, more than once if kTurns. kGroups * kGroup experts at most.
template <int kGroups, bool kTurns>
__global__ void __launch_bounds__(kThreads, kGroups == 1 ? kResident : 1) choose_kernel(const Choose o) {
  constexpr int kRowOfSums = kGroup + 8;  // lanes 4 g + t that write column 2 t of row g meet 32 banks
  __shared__ __align__(16) float squares_of_warps[kWarps][kRows], squares[2][kBlocks][kRows];
  __shared__ __align__(16) float sums[kWarps][kRows][kRowOfSums], products[kBlocks][kOwn][kGroups * kGroup];
  __shared__ float bias[kGroups * kGroup];
  __shared__ uint64_t squares_here[2], products_here;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int rank = blockIdx.x % kBlocks, clusters = gridDim.x / kBlocks;

  if (threadIdx.x == 0) {
    for (uint64_t& barrier : squares_here) ptx::mbarrier_init(&barrier, 1);
    ptx::mbarrier_init(&products_here, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&squares_here[0], sizeof(squares[0]));
    ptx::mbarrier_arrive_expect_tx(&products_here, sizeof(products));
  }
  __syncwarp();
  ptx::cluster_arrive();  // others may store here once they have waited

  // What no kernel of the chain writes.
  const auto column = [&](int u) { return ((rank * kWarps + warp) * kUnits + u) * kUnit + 4 * t; };
  const auto inside = [&](int u) { return column(u) < o.width; };
  float4 by[kUnits] = {};
  uint2 b[kGroups * kTiles][kUnits] = {};
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (!inside(u)) continue;
    by[u] = __ldg(reinterpret_cast<const float4*>(o.weight + column(u)));
#pragma unroll
    for (int n = 0; n < kGroups * kTiles; ++n)
      if (8 * n + g < o.num_experts)
        b[n][u] = __ldg(reinterpret_cast<const uint2*>(o.router + (8 * n + g) * o.width + column(u)));
  }
  for (int e = threadIdx.x; e < kGroups * kGroup; e += kThreads)
    bias[e] = e < o.num_experts ? __ldg(o.bias + e) : 0;
  ptx::let_next_begin();
  ptx::wait_for_previous();

  // This lane's part of x: of rows g and g + 8.
  struct Pair {
    float4 low[kUnits] = {}, high[kUnits] = {};
  };
  const auto load = [&](int first_row) {
    Pair x;
    const int64_t low_row = first_row + g, high_row = low_row + 8;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (inside(u) && low_row < o.rows)
        x.low[u] = *reinterpret_cast<const float4*>(o.x + low_row * o.width + column(u));
      if (inside(u) && high_row < o.rows)
        x.high[u] = *reinterpret_cast<const float4*>(o.x + high_row * o.width + column(u));
    }
    return x;
  };

  int first_row = blockIdx.x / kBlocks * kRows;
  Pair x        = load(first_row);
  for (int turn = 0; kTurns ? first_row < o.rows : turn == 0; ++turn, first_row += clusters * kRows) {
    Pair next;
    if constexpr (kTurns) next = load(first_row + clusters * kRows);
    const int own        = first_row + kOwn * rank + warp;  // the row to choose for, if warp < kOwn
    const int position   = warp < kOwn && own < o.rows ? o.positions[own] : 0;
    uint64_t* const here = &squares_here[turn & 1];

    float of_low = 0, of_high = 0;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      of_low += square(x.low[u]);
      of_high += square(x.high[u]);
    }
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      of_low += __shfl_xor_sync(~0u, of_low, other);
      of_high += __shfl_xor_sync(~0u, of_high, other);
    }
    if (t == 0) {
      squares_of_warps[warp][g]     = of_low;
      squares_of_warps[warp][g + 8] = of_high;
    }
    __syncthreads();                     // squares_of_warps is complete, and bias; sums have been read
    if (turn == 0) ptx::cluster_wait();  // the others' barriers can be used
    float(&of_blocks)[kBlocks][kRows] = squares[turn & 1];
    if (warp == 0) {  // lane 4 g + t stores rows 4 t .. 4 t + 3 in block g
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        sum = sum + *reinterpret_cast<const float4*>(&squares_of_warps[w][4 * t]);
      ptx::store_to_block(ptx::address_in_block(ptx::shared_address(&of_blocks[rank][4 * t]), g), sum,
                          ptx::address_in_block(ptx::shared_address(here), g));
    }
    ptx::mbarrier_wait(here, turn >> 1 & 1);
    // Others' squares of the next turn may have come already: a phase does not end before this arrival. They
    // have a barrier of their own; the next products come when all blocks have this block's next squares, and
    // then it has chosen.
    if (kTurns && threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(&squares_here[turn + 1 & 1], sizeof(squares[0]));
    of_low = of_high = 0;
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      of_low += of_blocks[r][g];
      of_high += of_blocks[r][g + 8];
    }
    const float low_scale  = rsqrtf(of_low / static_cast<float>(o.width) + o.eps);
    const float high_scale = rsqrtf(of_high / static_cast<float>(o.width) + o.eps);

    float sum[kGroups * kTiles][4] = {};
    const int64_t low_row = first_row + g, high_row = low_row + 8;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const float4 l = x.low[u], h = x.high[u], w = by[u];
      const uint32_t a[4] = {pack(l.x * low_scale * w.x, l.y * low_scale * w.y),
                             pack(h.x * high_scale * w.x, h.y * high_scale * w.y),
                             pack(l.z * low_scale * w.z, l.w * low_scale * w.w),
                             pack(h.z * high_scale * w.z, h.w * high_scale * w.w)};
      if (inside(u) && low_row < o.rows)
        *reinterpret_cast<uint2*>(o.y + low_row * o.width + column(u)) = {a[0], a[2]};
      if (inside(u) && high_row < o.rows)
        *reinterpret_cast<uint2*>(o.y + high_row * o.width + column(u)) = {a[1], a[3]};
#pragma unroll
      for (int n = 0; n < kGroups * kTiles; ++n) {
        const uint32_t of_n[2] = {b[n][u].x, b[n][u].y};
        ptx::mma_16x8x16(sum[n], a, of_n);
      }
    }
    x = next;

#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group > 0) __syncthreads();  // the sums of the group before have been read
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float(&d)[4]                                            = sum[group * kTiles + n];
        *reinterpret_cast<float2*>(&sums[warp][g][8 * n + 2 * t])     = {d[0], d[1]};
        *reinterpret_cast<float2*>(&sums[warp][g + 8][8 * n + 2 * t]) = {d[2], d[3]};
      }
      __syncthreads();  // the sums are complete
      const int row = threadIdx.x / (kGroup / 4), expert = threadIdx.x % (kGroup / 4) * 4;
      if (row < kRows) {
        float4 of_block = {};
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
          of_block = of_block + *reinterpret_cast<const float4*>(&sums[w][row][expert]);
        const uint32_t to = ptx::shared_address(&products[rank][row % kOwn][group * kGroup + expert]);
        ptx::store_to_block(ptx::address_in_block(to, row / kOwn), of_block,
                            ptx::address_in_block(ptx::shared_address(&products_here), row / kOwn));
      }
    }

    if (warp >= kOwn) continue;
    ptx::mbarrier_wait(&products_here, turn & 1);  // also where there is no row: nobody leaves before
    if (kTurns && threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(&products_here, sizeof(products));
    if (own >= o.rows) continue;
    uint32_t keys[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float logit = bias[i * kGroup + lane];
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) logit += products[r][warp][i * kGroup + lane];
      keys[i] = i * kGroup + lane < o.num_experts ? key_of(logit) : 0;
    }
    choose<kGroups>(o, own, position < 0, keys);
  }
}

// Clusters that the GPU holds at once: what its multiprocessors have room for, as far as they can be grouped.
template <int kGroups>
int resident_clusters() {
  static const int count = [] {
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension};
    cluster.val.clusterDim.x    = kBlocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config                           = {};
    config.gridDim                                      = dim3(kBlocks);
    config.blockDim                                     = dim3(kThreads);
    config.attrs                                        = &cluster;
    config.numAttrs                                     = 1;
    int clusters                                        = 0;
    FATHOM_CUDA(cudaOccupancyMaxActiveClusters(&clusters, choose_kernel<kGroups, true>, &config));
    return std::max(clusters, 1);
  }();
  return count;
}

template <int kGroups>
void launch(const Choose& o, StreamRef stream) {
  const int all      = static_cast<int>(blocks_for(o.rows, kRows)),
            clusters = std::min(all, resident_clusters<kGroups>());
  launch_chained(clusters < all ? choose_kernel<kGroups, true> : choose_kernel<kGroups, false>,
                 dim3(static_cast<unsigned>(clusters * kBlocks)), dim3(kThreads), 0, kBlocks, stream, o);
}

bool of_vectors(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace

void normalize_and_choose(View<const float, 2> x, View<const float, 1> weight, float eps,
                          View<const bf16, 2> router, View<const float, 1> bias,
                          View<const int32_t, 1> positions, View<bf16, 2> y, View<int32_t, 2> experts,
                          View<float, 2> weights, StreamRef stream) {
  const int64_t rows = x.extent(0), width = x.extent(1), num_experts = router.extent(0),
                top_k = experts.extent(1);
  FATHOM_EXPECT(weight.extent(0) == width && router.extent(1) == width && bias.extent(0) == num_experts &&
                    positions.extent(0) == rows && y.extent(0) == rows && y.extent(1) == width &&
                    experts.extent(0) == rows && weights.extent(0) == rows && weights.extent(1) == top_k,
                "normalize_and_choose: x and y are [T, H], router [E, H], experts and weights [T, top_k]");
  FATHOM_EXPECT(
      width % kUnit == 0 && width <= kWidest && eps > 0 && num_experts <= 4 * kGroup && top_k > 0 &&
          top_k <= kMostChosen && top_k <= num_experts,
      "normalize_and_choose: rows of at most 3072, 128 experts, of which 8 are chosen; eps above 0");
  FATHOM_EXPECT(x.contiguous() && weight.contiguous() && router.contiguous() && bias.contiguous() &&
                    positions.contiguous() && y.contiguous() && experts.contiguous() &&
                    weights.contiguous() && of_vectors(x.data()) && of_vectors(weight.data()) &&
                    of_vectors(router.data()) && of_vectors(y.data()),
                "normalize_and_choose: rows are whole vectors of 16 bytes, one after another");
  if (rows == 0) return;
  FATHOM_EXPECT(rows <= INT32_MAX / 2, "normalize_and_choose: the kernel counts in 32 bits");
  const Choose o{x.data(),
                 weight.data(),
                 router.data(),
                 bias.data(),
                 positions.data(),
                 y.data(),
                 experts.data(),
                 weights.data(),
                 static_cast<int>(rows),
                 static_cast<int>(width),
                 static_cast<int>(num_experts),
                 static_cast<int>(top_k),
                 eps};
  num_experts <= kGroup ? launch<1>(o, stream) : launch<4>(o, stream);
}

}  // namespace fathom::kernels
