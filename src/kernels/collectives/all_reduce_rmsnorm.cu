// x += the sum over ranks of `parts`; y = rmsnorm(x) in bf16 (all_reduce_rmsnorm.h)
//
// bytes   a row of H = 2880, two ranks, J = 1: 11.5 KB sent and as many received; in this GPU's memory 11.5
//         KB of parts, 23 KB of x, 5.8 KB of y, and 11.5 KB each of what was received and of its zeros
// flops   (J + ranks + 3) H
// limit   few rows: the latency of the link. 64 rows send 737 KB: 2.0 us at 370 GB/s
// idea    A cluster of CTAs has a row, and each thread four numbers of it, from the sum over j to y: several
//         multiprocessors fetch and send the row, and the sum of squares stays on them (kernels/norm). With
//         many rows a cluster goes on to other ones, and sends the next row before it waits for this one, so
//         that the link works while it waits. No more clusters than fit at once, or one could wait for a row
//         that nobody has room to send
#include <algorithm>

#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/alignment.h"
#include "kernels/collectives/all_reduce_rmsnorm.h"
#include "kernels/collectives/lamport_sum.cuh"
#include "kernels/norm/sum_of_squares.cuh"

namespace fathom::kernels {
namespace {

constexpr int kClusterSize = 4;
constexpr int kThreads     = 192;
constexpr int kCtasPerSm   = 6;
constexpr int kMaxVectors  = kClusterSize * kThreads;  // of 4 numbers: the widest row
constexpr int kPieces      = kMaxVectors / 32;         // a piece is a vector for each lane of a warp

struct AllReduceRmsnorm {
  LamportSum sum;
  float4* x;
  const float4* weight;
  uint2* y;
  int64_t rows;
  int vectors, width;  // of a row
  float eps;
};

// Cluster c has the rows c, c + clusters, ..
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    all_reduce_rmsnorm_kernel(const __grid_constant__ AllReduceRmsnorm o) {
  __shared__ float4 squares[2][kPieces];  // of successive rows, in .x: st.async stores 16 bytes
  __shared__ uint64_t arrived[2];
  const int lane = threadIdx.x % 32, v = blockIdx.x % kClusterSize * kThreads + threadIdx.x;
  const bool inside      = v < o.vectors;
  const int64_t clusters = gridDim.x / kClusterSize;

  if (threadIdx.x == 0) {
    for (uint64_t& barrier : arrived) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&arrived[0], sizeof(squares[0]));
  }
  __syncwarp();
  ptx::cluster_barrier_arrive();  // the other CTAs may store here once they have waited
  const float4 weight = inside ? __ldg(o.weight + v) : float4{};
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  int64_t row = blockIdx.x / kClusterSize;
  float4 own  = {};
  if (inside) own = o.sum.send(row, v);
  __syncwarp();
  ptx::cluster_barrier_wait();  // `arrived` of the other CTAs is initialised
  for (int i = 0; row < o.rows; ++i, row += clusters) {
    float4 next = {}, x = {};
    if (inside) {
      if (row + clusters < o.rows) next = o.sum.send(row + clusters, v);
      x                        = __ldcg(o.x + row * o.vectors + v);
      x                        = x + o.sum.sum_of_ranks(row, v, own);
      o.x[row * o.vectors + v] = x;
    }
    const float sum   = warp_reduce_sum(sum_of_squares(x));
    const uint32_t to = ptx::shared_address(&squares[i & 1][v / 32]),
                   at = ptx::shared_address(&arrived[i & 1]);
    if (lane < kClusterSize)
      ptx::st_async_v4(ptx::mapa_shared_cluster(to, lane), {sum, 0, 0, 0},
                       ptx::mapa_shared_cluster(at, lane));
    ptx::mbarrier_wait(at, i >> 1 & 1);
    // Squares of the next row may have arrived already. They are elsewhere, and the phase of their barrier
    // cannot end before this arrival. Those of the row after it come only when all warps have sent the next
    // row's, and so have read this row's.
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(&arrived[i + 1 & 1], sizeof(squares[0]));
    const float mean =
        warp_reduce_sum(lane < kPieces ? squares[i & 1][lane].x : 0) / static_cast<float>(o.width);
    const float scale = rsqrtf(mean + o.eps);
    if (inside)
      o.y[row * o.vectors + v] = {pack_bf16x2(x.x * scale * weight.x, x.y * scale * weight.y),
                                  pack_bf16x2(x.z * scale * weight.z, x.w * scale * weight.w)};
    own = next;
  }
}

// Clusters that run at once on the current GPU.
int resident_row_clusters() {
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
    FATHOM_CUDA(cudaOccupancyMaxActiveClusters(&clusters, all_reduce_rmsnorm_kernel, &config));
    return std::max(clusters, 1);
  });
}

}  // namespace

void all_reduce_rmsnorm(View<const float, 3> parts, View<const int32_t, 2> ids, const PeerRows& peers,
                        int half, View<float, 2> x, View<const float, 1> weight, float eps, View<bf16, 2> y,
                        StreamRef stream) {
  const int64_t rows = x.extent(0), width = x.extent(1);
  FATHOM_EXPECT(peers.ranks >= 2 && peers.ranks <= kMaxRanks && peers.rank >= 0 && peers.rank < peers.ranks &&
                    (half == 0 || half == 1),
                "all_reduce_rmsnorm: 2 to 8 ranks, and half 0 or 1 of their memory");
  FATHOM_EXPECT(parts.extent(0) == rows && parts.extent(2) == width && weight.extent(0) == width &&
                    y.extent(0) == rows && y.extent(1) == width && width == peers.width &&
                    rows <= peers.max_rows &&
                    (ids.size() == 0 || (ids.extent(0) == rows && ids.extent(1) == parts.extent(1))),
                "all_reduce_rmsnorm: parts [T, J, H], ids [T, J], x and y [T, H], weight [H], of at most the "
                "peers' rows");
  FATHOM_EXPECT(width % 4 == 0 && width <= 4 * kMaxVectors && eps > 0 && parts.contiguous() &&
                    ids.contiguous() && x.contiguous() && weight.contiguous() && y.contiguous() &&
                    aligned_to_16(parts.data()) && aligned_to_16(x.data()) && aligned_to_16(weight.data()) &&
                    aligned_to_16(y.data()),
                "all_reduce_rmsnorm: rows of at most 3072, whole vectors of 16 bytes, one after another; eps "
                "above 0");
  if (x.size() == 0) return;
  const auto vectors = static_cast<int>(width / 4);
  AllReduceRmsnorm o{.sum     = {.own     = {.parts   = reinterpret_cast<const float4*>(parts.data()),
                                             .ids     = ids.size() > 0 ? ids.data() : nullptr,
                                             .addends = static_cast<int>(parts.extent(1)),
                                             .vectors = vectors},
                                 .rank    = peers.rank,
                                 .ranks   = peers.ranks,
                                 .step    = peers.max_rows * vectors,
                                 .receive = {}},
                     .x       = reinterpret_cast<float4*>(x.data()),
                     .weight  = reinterpret_cast<const float4*>(weight.data()),
                     .y       = reinterpret_cast<uint2*>(y.data()),
                     .rows    = rows,
                     .vectors = vectors,
                     .width   = static_cast<int>(width),
                     .eps     = eps};
  for (int r = 0; r < peers.ranks; ++r) o.sum.receive[r] = reinterpret_cast<float4*>(peers.rows(r, half, 0));
  const int64_t clusters = std::min<int64_t>(rows, resident_row_clusters());
  launch_with_pdl(all_reduce_rmsnorm_kernel, dim3(static_cast<unsigned>(clusters * kClusterSize)),
                  dim3(kThreads), 0, kClusterSize, stream, o);
}

}  // namespace fathom::kernels
