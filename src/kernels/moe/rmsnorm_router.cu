// y = rmsnorm(x) in bf16; logits = router y + bias; the top_k largest, and the softmax over those
//
// bytes   a row of H = 2880: x 11.5 KB, y 5.8 KB; the router's 184 KB (E = 32) for each 16 rows, from L2
// flops   2 E H a row, on tensor cores
// limit   DRAM bandwidth: 8192 rows move 142 MB, 33 us at 4.3 TB/s. Few rows: latency
// idea    A cluster of 8 CTAs has 16 rows, and each of its 64 warps has 48 columns of them. From the load to
//         the product they lie in registers as A fragments (cuda/ptx.cuh): lane 4 g + t has columns
//         4 t .. 4 t + 3 of rows g and g + 8 of each 16 columns, and the same columns of the router, fetched
//         while the previous kernel still runs. Two sums are over the whole row: the squares and the
//         products. Warps add up within their CTA, and CTAs store into each other's shared memory. The
//         products go to the CTA that chooses the row's experts; each CTA chooses for two rows. With many
//         rows a cluster goes on to the next 16, whose x is already in flight, and keeps its part of the
//         router
#include <algorithm>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "cuda/ptx.cuh"
#include "cuda/radix_key.cuh"
#include "kernels/alignment.h"
#include "kernels/moe/rmsnorm_router.h"
#include "kernels/norm/sum_of_squares.cuh"

namespace fathom::kernels {
namespace {

constexpr int kClusterSize     = 8;
constexpr int kWarps           = 8;
constexpr int kThreads         = 32 * kWarps;
constexpr int kRows            = 16;  // of a cluster
constexpr int kRowsPerCta      = kRows / kClusterSize;
constexpr int kFragmentColumns = 16;
constexpr int kFragments       = 3;  // of a warp
constexpr int kMaxWidth        = kClusterSize * kWarps * kFragments * kFragmentColumns;
constexpr int kExpertGroup     = 32;  // experts
constexpr int kMmasPerGroup    = kExpertGroup / 8;
constexpr int kMaxTopK         = 8;
constexpr int kCtasPerSm       = 2;

struct RmsnormRouter {
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
  int first_here;
  uint32_t experts_here;
};

// Top-k and softmax of one row, by one warp. keys[i] of lane l is the key of expert 32 i + l, or 0.
template <int kExpertGroups>
__device__ void select_experts(const RmsnormRouter& o, int64_t row, bool padding,
                               uint32_t (&keys)[kExpertGroups]) {
  const int lane     = threadIdx.x % 32;
  int32_t own_expert = -1;  // lane k keeps the k-th
  float own_logit = 0, largest = 0;
  for (int k = 0; k < o.top_k; ++k) {
    uint32_t best = keys[0];
#pragma unroll
    for (int i = 1; i < kExpertGroups; ++i) best = max(best, keys[i]);
    best            = __reduce_max_sync(~0u, best);
    uint32_t expert = ~0u;
#pragma unroll
    for (int i = kExpertGroups - 1; i >= 0; --i)
      if (keys[i] == best) expert = i * kExpertGroup + lane;
    expert = __reduce_min_sync(~0u, expert);
#pragma unroll
    for (int i = 0; i < kExpertGroups; ++i)
      if (expert == i * kExpertGroup + lane) keys[i] = 0;
    if (k == 0) largest = radix_key_value(best);
    if (lane == k) {
      own_expert = static_cast<int32_t>(expert);
      own_logit  = radix_key_value(best);
    }
  }
  const float own_weight = lane < o.top_k ? expf(own_logit - largest) : 0;
  float total            = own_weight;
#pragma unroll
  for (int other = kMaxTopK / 2; other > 0; other /= 2) total += __shfl_xor_sync(~0u, total, other);
  if (lane >= o.top_k) return;
  const auto here                 = static_cast<uint32_t>(own_expert - o.first_here);
  o.experts[row * o.top_k + lane] = padding || here >= o.experts_here ? -1 : static_cast<int32_t>(here);
  o.weights[row * o.top_k + lane] = padding ? 0 : own_weight / total;
}

// A cluster has kRows rows at a time, several times if kPersistent. For at most kExpertGroups * kExpertGroup
// experts.
template <int kExpertGroups, bool kPersistent>
__global__ void __launch_bounds__(kThreads, kExpertGroups == 1 ? kCtasPerSm : 1)
    rmsnorm_router_kernel(const RmsnormRouter o) {
  constexpr int kRowOfSums = kExpertGroup + 8;  // lanes 4 g + t that write column 2 t of row g meet 32 banks
  __shared__ __align__(16) float warp_squares[kWarps][kRows], squares[2][kClusterSize][kRows];
  __shared__ __align__(16) float sums[kWarps][kRows][kRowOfSums],
      products[kClusterSize][kRowsPerCta][kExpertGroups * kExpertGroup];
  __shared__ float bias[kExpertGroups * kExpertGroup];
  __shared__ uint64_t squares_arrived[2], products_arrived;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int rank = blockIdx.x % kClusterSize, clusters = gridDim.x / kClusterSize;

  if (threadIdx.x == 0) {
    for (uint64_t& barrier : squares_arrived) ptx::mbarrier_init(&barrier, 1);
    ptx::mbarrier_init(&products_arrived, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&squares_arrived[0], sizeof(squares[0]));
    ptx::mbarrier_arrive_expect_tx(&products_arrived, sizeof(products));
  }
  __syncwarp();
  ptx::cluster_barrier_arrive();  // the other CTAs may store here once they have waited

  // Weights: no kernel of the chain writes them, so that they can be loaded before the wait.
  const auto column = [&](int u) {
    return ((rank * kWarps + warp) * kFragments + u) * kFragmentColumns + 4 * t;
  };
  const auto inside                                  = [&](int u) { return column(u) < o.width; };
  float4 norm_weight[kFragments]                     = {};
  uint2 b[kExpertGroups * kMmasPerGroup][kFragments] = {};
#pragma unroll
  for (int u = 0; u < kFragments; ++u) {
    if (!inside(u)) continue;
    norm_weight[u] = __ldg(reinterpret_cast<const float4*>(o.weight + column(u)));
#pragma unroll
    for (int n = 0; n < kExpertGroups * kMmasPerGroup; ++n)
      if (8 * n + g < o.num_experts)
        b[n][u] = __ldg(reinterpret_cast<const uint2*>(o.router + (8 * n + g) * o.width + column(u)));
  }
  for (int e = threadIdx.x; e < kExpertGroups * kExpertGroup; e += kThreads)
    bias[e] = e < o.num_experts ? __ldg(o.bias + e) : 0;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  // This lane's part of x: rows g and g + 8.
  struct Pair {
    float4 low[kFragments] = {}, high[kFragments] = {};
  };
  const auto load = [&](int first_row) {
    Pair x;
    const int64_t low_row = first_row + g, high_row = low_row + 8;
#pragma unroll
    for (int u = 0; u < kFragments; ++u) {
      if (inside(u) && low_row < o.rows)
        x.low[u] = *reinterpret_cast<const float4*>(o.x + low_row * o.width + column(u));
      if (inside(u) && high_row < o.rows)
        x.high[u] = *reinterpret_cast<const float4*>(o.x + high_row * o.width + column(u));
    }
    return x;
  };

  int first_row = blockIdx.x / kClusterSize * kRows;
  Pair x        = load(first_row);
  for (int iteration = 0; kPersistent ? first_row < o.rows : iteration == 0;
       ++iteration, first_row += clusters * kRows) {
    Pair next;
    if constexpr (kPersistent) next = load(first_row + clusters * kRows);
    const int own_row =
        first_row + kRowsPerCta * rank + warp;  // the row that this warp chooses for, if warp < kRowsPerCta
    const int position      = warp < kRowsPerCta && own_row < o.rows ? o.positions[own_row] : 0;
    uint64_t* const arrived = &squares_arrived[iteration & 1];

    float low_squares = 0, high_squares = 0;
#pragma unroll
    for (int u = 0; u < kFragments; ++u) {
      low_squares += sum_of_squares(x.low[u]);
      high_squares += sum_of_squares(x.high[u]);
    }
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      low_squares += __shfl_xor_sync(~0u, low_squares, other);
      high_squares += __shfl_xor_sync(~0u, high_squares, other);
    }
    if (t == 0) {
      warp_squares[warp][g]     = low_squares;
      warp_squares[warp][g + 8] = high_squares;
    }
    __syncthreads();  // warp_squares and bias are complete; `sums` has been read
    if (iteration == 0) ptx::cluster_barrier_wait();  // the other CTAs' barriers are initialised
    float(&cluster_squares)[kClusterSize][kRows] = squares[iteration & 1];
    if (warp == 0) {  // lane 4 g + t stores rows 4 t .. 4 t + 3 in CTA g
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum = sum + *reinterpret_cast<const float4*>(&warp_squares[w][4 * t]);
      ptx::st_async_v4(ptx::mapa_shared_cluster(ptx::shared_address(&cluster_squares[rank][4 * t]), g), sum,
                       ptx::mapa_shared_cluster(ptx::shared_address(arrived), g));
    }
    ptx::mbarrier_wait(arrived, iteration >> 1 & 1);
    // The other CTAs' squares of the next iteration may have arrived already. Their barrier is another one,
    // and its phase cannot end before this arrival. The next iteration's products arrive only when all CTAs
    // have this CTA's next squares, and by then this CTA has chosen its experts.
    if (kPersistent && threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(&squares_arrived[iteration + 1 & 1], sizeof(squares[0]));
    low_squares = high_squares = 0;
#pragma unroll
    for (int r = 0; r < kClusterSize; ++r) {
      low_squares += cluster_squares[r][g];
      high_squares += cluster_squares[r][g + 8];
    }
    const float low_scale  = rsqrtf(low_squares / static_cast<float>(o.width) + o.eps);
    const float high_scale = rsqrtf(high_squares / static_cast<float>(o.width) + o.eps);

    float sum[kExpertGroups * kMmasPerGroup][4] = {};
    const int64_t low_row = first_row + g, high_row = low_row + 8;
#pragma unroll
    for (int u = 0; u < kFragments; ++u) {
      const float4 l = x.low[u], h = x.high[u], w = norm_weight[u];
      const uint32_t a[4] = {pack_bf16x2(l.x * low_scale * w.x, l.y * low_scale * w.y),
                             pack_bf16x2(h.x * high_scale * w.x, h.y * high_scale * w.y),
                             pack_bf16x2(l.z * low_scale * w.z, l.w * low_scale * w.w),
                             pack_bf16x2(h.z * high_scale * w.z, h.w * high_scale * w.w)};
      if (inside(u) && low_row < o.rows)
        *reinterpret_cast<uint2*>(o.y + low_row * o.width + column(u)) = {a[0], a[2]};
      if (inside(u) && high_row < o.rows)
        *reinterpret_cast<uint2*>(o.y + high_row * o.width + column(u)) = {a[1], a[3]};
#pragma unroll
      for (int n = 0; n < kExpertGroups * kMmasPerGroup; ++n) {
        const uint32_t b_fragment[2] = {b[n][u].x, b[n][u].y};
        ptx::mma_m16n8k16(sum[n], a, b_fragment);
      }
    }
    x = next;

#pragma unroll
    for (int group = 0; group < kExpertGroups; ++group) {
      if (group > 0) __syncthreads();  // the previous group's sums have been read
#pragma unroll
      for (int n = 0; n < kMmasPerGroup; ++n) {
        const float(&d)[4]                                            = sum[group * kMmasPerGroup + n];
        *reinterpret_cast<float2*>(&sums[warp][g][8 * n + 2 * t])     = {d[0], d[1]};
        *reinterpret_cast<float2*>(&sums[warp][g + 8][8 * n + 2 * t]) = {d[2], d[3]};
      }
      __syncthreads();  // the sums are complete
      const int row = threadIdx.x / (kExpertGroup / 4), expert = threadIdx.x % (kExpertGroup / 4) * 4;
      if (row < kRows) {
        float4 cta_sum = {};
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
          cta_sum = cta_sum + *reinterpret_cast<const float4*>(&sums[w][row][expert]);
        const uint32_t to =
            ptx::shared_address(&products[rank][row % kRowsPerCta][group * kExpertGroup + expert]);
        ptx::st_async_v4(ptx::mapa_shared_cluster(to, row / kRowsPerCta), cta_sum,
                         ptx::mapa_shared_cluster(ptx::shared_address(&products_arrived), row / kRowsPerCta));
      }
    }

    if (warp >= kRowsPerCta) continue;
    ptx::mbarrier_wait(&products_arrived,
                       iteration & 1);  // also without a row: the CTA must not exit before they arrive
    if (kPersistent && threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(&products_arrived, sizeof(products));
    if (own_row >= o.rows) continue;
    uint32_t keys[kExpertGroups];
#pragma unroll
    for (int i = 0; i < kExpertGroups; ++i) {
      float logit = bias[i * kExpertGroup + lane];
#pragma unroll
      for (int r = 0; r < kClusterSize; ++r) logit += products[r][warp][i * kExpertGroup + lane];
      keys[i] = i * kExpertGroup + lane < o.num_experts ? radix_key(logit) : 0;
    }
    select_experts<kExpertGroups>(o, own_row, position < 0, keys);
  }
}

// Clusters that run at once on the current GPU.
template <int kExpertGroups>
int resident_clusters() {
  static PerDevice<int> count;
  return count.get([] {
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension};
    cluster.val.clusterDim.x    = kClusterSize;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config                           = {};
    config.gridDim                                      = dim3(kClusterSize);
    config.blockDim                                     = dim3(kThreads);
    config.attrs                                        = &cluster;
    config.numAttrs                                     = 1;
    int clusters                                        = 0;
    FATHOM_CUDA(
        cudaOccupancyMaxActiveClusters(&clusters, rmsnorm_router_kernel<kExpertGroups, true>, &config));
    return std::max(clusters, 1);
  });
}

template <int kExpertGroups>
void launch(const RmsnormRouter& o, StreamRef stream) {
  const int needed   = static_cast<int>(blocks_for(o.rows, kRows)),
            clusters = std::min(needed, resident_clusters<kExpertGroups>());
  launch_with_pdl(clusters < needed ? rmsnorm_router_kernel<kExpertGroups, true>
                                    : rmsnorm_router_kernel<kExpertGroups, false>,
                  dim3(static_cast<unsigned>(clusters * kClusterSize)), dim3(kThreads), 0, kClusterSize,
                  stream, o);
}

}  // namespace

void rmsnorm_router(View<const float, 2> x, View<const float, 1> weight, float eps,
                    View<const bf16, 2> router, View<const float, 1> bias, View<const int32_t, 1> positions,
                    View<bf16, 2> y, View<int32_t, 2> experts, View<float, 2> weights, StreamRef stream,
                    const ExpertRange& here) {
  const int64_t rows = x.extent(0), width = x.extent(1), num_experts = router.extent(0),
                top_k = experts.extent(1);
  FATHOM_EXPECT(weight.extent(0) == width && router.extent(1) == width && bias.extent(0) == num_experts &&
                    positions.extent(0) == rows && y.extent(0) == rows && y.extent(1) == width &&
                    experts.extent(0) == rows && weights.extent(0) == rows && weights.extent(1) == top_k,
                "rmsnorm_router: x and y are [T, H], router [E, H], experts and weights [T, top_k]");
  FATHOM_EXPECT(width % kFragmentColumns == 0 && width <= kMaxWidth && eps > 0 &&
                    num_experts <= 4 * kExpertGroup && top_k > 0 && top_k <= kMaxTopK && top_k <= num_experts,
                "rmsnorm_router: rows of at most 3072, 128 experts, of which 8 are own_expert; eps above 0");
  FATHOM_EXPECT(x.contiguous() && weight.contiguous() && router.contiguous() && bias.contiguous() &&
                    positions.contiguous() && y.contiguous() && experts.contiguous() &&
                    weights.contiguous() && aligned_to_16(x.data()) && aligned_to_16(weight.data()) &&
                    aligned_to_16(router.data()) && aligned_to_16(y.data()),
                "rmsnorm_router: rows are whole vectors of 16 bytes, one after another");
  if (rows == 0) return;
  FATHOM_EXPECT(rows <= INT32_MAX / 2, "rmsnorm_router: the kernel counts in 32 bits");
  const RmsnormRouter o{x.data(),
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
                        eps,
                        static_cast<int>(here.first),
                        static_cast<uint32_t>(here.count)};
  num_experts <= kExpertGroup ? launch<1>(o, stream) : launch<4>(o, stream);
}

}  // namespace fathom::kernels
