// out(t, h) = sum_j p(j) v(j) / (exp(sink(h)) + sum_j p(j)),  p(j) = exp(scale q(t, h) . k(j)); few rows t
//
// bytes   256 Hkv for each position in reach of a row (keys and values in bf16; 136 in FP8), read once for a
//         group of query heads; rows of one sequence meet in L2
// flops   4 x 64 x 8 Hkv for each: 8 heads are the columns of a product, whether the group fills them or not
// limit   DRAM bandwidth; a window or a short context: latency
// idea    S^T = K Q^T has 16 keys as rows and the group as its 8 columns: K comes from its tile by ldmatrix,
//         Q stays in registers, and P is O^T = V^T P^T's second operand once its 8 x 8 blocks are transposed
//         in registers. A warp works for itself: every kWarps-th run of kKeys positions is its own, the copy
//         engine fetches the next ones into its own ring, nothing but its own maximum and sums to carry on.
//         A block's warps meet at the end, in shared memory. The blocks that share a row are a cluster: the
//         others store their part into the first one's shared memory, and it adds the sink, once. So there
//         is no second kernel and nothing to keep in device memory, at the price of at most 8 blocks a row.
//         Positions that the step does not write are fetched before the previous kernel has ended.
//         FP8 becomes bf16 on the way from ldmatrix to the tensor cores. 16-bit units of rows of bytes are
//         pairs of dimensions: kernels/kv_run.cuh has what the order of sums and of outputs does with them.
// source  Dao et al., Flash-Decoding, 2023 (splits); gpt-oss.md section 3 (the sink in the final sum only)
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"
#include "kernels/kv_run.cuh"
#include "kernels/paged_attention.h"

namespace fathom::kernels {
namespace {

constexpr int kGroup   = 8;   // columns of a product
constexpr int kDims    = 64;  // of a head
constexpr int kKeys    = 32;  // of a run
constexpr int kCluster = 8;   // blocks that share a row, at most
constexpr float kLog2E = 1.44269504f;
static_assert(kDims == kHeadDim);

template <class Kv>
struct Attend {
  const bf16* q;
  Kv kv;
  const float* sinks;
  float scale;  // to base 2
  int window;
  PagedRows rows;
  bf16* out;
  int query_heads, group;
  int least;  // runs of a block, before another one helps it
};

// What blocks store into the cluster's first.
struct Part {
  float out[kGroup][kDims];
  float4 most_and_sum[kGroup];  // two numbers each
};

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

// What a warp knows of a row and a key-value head after some positions. Lane 4 g + t has columns (heads) 2 t
// and 2 t + 1; its sums of weights are of keys g and g + 8 of each 16, its sums of values of rows g and
// g + 8 of value (m, i).
struct Running {
  float most[2]   = {-INFINITY, -INFINITY};  // of all keys so far, to base 2
  float sum[2]    = {};
  float out[4][4] = {};
};

// kWarps warps, each with a ring of kStages runs; kBlocks blocks fit on a multiprocessor.
template <class RunOf, int kWarps_, int kBlocks_>
struct Shape {
  using Run                   = RunOf;
  static constexpr int kWarps = kWarps_, kKeys = Run::kKeys, kStages = Run::kStages, kBlocks = kBlocks_;
  static constexpr int kThreads    = 32 * kWarps;
  static constexpr int kStageBytes = Run::kBytes;
  static constexpr int kRingBytes  = kStages * kStageBytes;  // of a warp
  static constexpr int kRunsOfPage = static_cast<int>(kTile) / kKeys;
  static_assert(kKeys % 16 == 0 && kTile % kKeys == 0);

  static int shared_bytes(int splits) {
    return kWarps * kRingBytes + (splits - 1) * static_cast<int>(sizeof(Part));
  }
};

// Adds a run, of whose positions those from `first` to `last` are in reach.
template <class Run>
__device__ void attend(Running& running, const uint32_t (&q)[4][2], const char* stage, int first, int last,
                       float scale) {
  const int lane = threadIdx.x % 32;
  Run run(stage, lane);

  float s[kKeys / 16][4] = {};
#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t a[4];
      run.key(m, k, a);
      ptx::mma_16x8x16(s[m], a, q[k]);
    }
  if (first > 0 || last < kKeys - 1) {
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = m * 16 + lane / 4 + e / 2 * 8;
        if (key < first || key > last) s[m][e] = -INFINITY;
      }
  }

  float times[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = -INFINITY;
#pragma unroll
    for (int m = 0; m < kKeys / 16; ++m) most = fmaxf(most, fmaxf(s[m][h], s[m][2 + h]));
#pragma unroll
    for (int other = 4; other < 32; other *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
    most            = fmaxf(running.most[h], most * scale);
    times[h]        = ptx::exp2_approximate(running.most[h] - most);
    running.most[h] = most;
    running.sum[h] *= times[h];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) running.out[i][e] *= times[e % 2];

#pragma unroll
  for (int m = 0; m < kKeys / 16; ++m) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[m][e] = ptx::exp2_approximate(s[m][e] * scale - running.most[e % 2]);
      running.sum[e % 2] += s[m][e];
    }
    const uint32_t p[2] = {ptx::transpose_matrix(pack(s[m][0], s[m][1])),
                           ptx::transpose_matrix(pack(s[m][2], s[m][3]))};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4];
      run.value(m, i, a);
      ptx::mma_16x8x16(running.out[i], a, p);
    }
  }
}

// Four dimensions of a head, of several warps or blocks.
struct Merged {
  float sum  = 0;
  float4 out = {};

  __device__ void add(float times, float other_sum, float4 other) {
    sum += times * other_sum;
    out.x += times * other.x;
    out.y += times * other.y;
    out.z += times * other.z;
    out.w += times * other.w;
  }
};

// Grid: (splits, key-value heads, T), and the splits of a row and head are a cluster.
template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    attend_few_kernel(const Attend<typename S::Run::Kv> o) {
  using Run = typename S::Run;
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[S::kWarps][S::kStages], parts_here;
  __shared__ float most[S::kWarps][kGroup], sum[S::kWarps][kGroup];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int split = blockIdx.x, head = blockIdx.y, t = blockIdx.z;
  const int splits = gridDim.x;
  bf16* const out  = o.out + (int64_t{t} * o.query_heads + head * o.group) * kDims;

  const int position = o.rows.positions.data()[t];
  if (position < 0) {  // padding
    if (split > 0) return;
    ptx::wait_for_previous();
    for (int i = threadIdx.x; i < o.group * kDims / 4; i += S::kThreads)
      reinterpret_cast<uint2*>(out)[i] = {};
    return;
  }
  const int32_t* const pages =
      o.rows.pages.data() + o.rows.sequence.data()[t] * static_cast<int64_t>(o.rows.pages.stride(0));
  const int merged_head = threadIdx.x / (kDims / 4);  // see the end
  const float sink      = merged_head < o.group ? o.sinks[head * o.group + merged_head] * kLog2E : 0;
  const int first       = o.window > 0 ? max(0, position - o.window + 1) : 0;
  const int runs        = position / S::kKeys + 1 - first / S::kKeys;
  const int of_split    = max(o.least, (runs + splits - 1) / splits);
  const int used        = (runs + of_split - 1) / of_split;
  if (split >= used) return;
  const int begin = first / S::kKeys + split * of_split + warp;  // of this warp: every kWarps-th run
  const int count = (min(of_split, runs - split * of_split) - warp + S::kWarps - 1) / S::kWarps;

  Part* const parts = reinterpret_cast<Part*>(ring + S::kWarps * S::kRingBytes);
  if (lane == 0)
    for (uint64_t& barrier : full[warp]) ptx::mbarrier_init(&barrier, 1);
  if (threadIdx.x == 0 && split == 0 && used > 1) {
    ptx::mbarrier_init(&parts_here, 1);
    ptx::mbarrier_arrive_expect_tx(&parts_here, (used - 1) * o.group * (kDims * 4 + 16));
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();  // the copy engine sees the barriers as they are now
  __syncwarp();
  if (used > 1) ptx::cluster_arrive_relaxed();  // others may use parts_here, once they have waited

  // The warp's i-th run goes to stage i % kStages. Lane i % 32 knows where it is, and starts the copies.
  char* const mine                             = ring + warp * S::kRingBytes;
  decltype(Run::source(o.kv, 0, 0, 0)) of_lane = nullptr;
  const auto fetch                             = [&](int i) {
    if (i % 32 == 0 && i + lane < count) {
      const int run = begin + (i + lane) * S::kWarps;
      of_lane       = Run::source(o.kv, pages[run / S::kRunsOfPage], head, run % S::kRunsOfPage);
    }
    if (lane != i % 32) return;
    const int stage = i % S::kStages;
    char* const to  = mine + stage * S::kStageBytes;
    ptx::mbarrier_arrive_expect_tx(&full[warp][stage], S::kStageBytes);
    ptx::bulk_load(to, of_lane, Run::kPartBytes, &full[warp][stage]);
    if constexpr (Run::kParts > 1)
      ptx::bulk_load(to + Run::kPartBytes, of_lane + Run::kApart, Run::kPartBytes, &full[warp][stage]);
  };
  // The step's own positions are among the last T, and come when the previous kernel has written them.
  int fetched       = 0;
  const int settled = position + 1 - static_cast<int>(gridDim.z);
  while (fetched < min(S::kStages, count) && (begin + fetched * S::kWarps + 1) * S::kKeys <= settled)
    fetch(fetched++);
  ptx::wait_for_previous();
  while (fetched < min(S::kStages, count)) fetch(fetched++);
  ptx::let_next_begin();

  // Column g of Q^T is head g of the group.
  uint32_t q[4][2] = {};
  if (lane / 4 < o.group) {
    const bf16* row = o.q + (int64_t{t} * o.query_heads + head * o.group + lane / 4) * kDims;
    Run::load_query(q, reinterpret_cast<const uint32_t*>(row), lane);
  }

  Running running;
  for (int i = 0; i < count; ++i) {
    const int stage = i % S::kStages;
    const int at    = (begin + i * S::kWarps) * S::kKeys;
    const int from = max(0, first - at), last = min(S::kKeys - 1, position - at);
    ptx::mbarrier_wait(&full[warp][stage], i / S::kStages & 1);
    if (from > 0 || last < S::kKeys - 1) {
      // Out of reach there may be anything, and 0 times a NaN is one.
      Run::clear(mine + stage * S::kStageBytes, from, last, lane);
      ptx::fence_proxy_async();  // before the stage is filled again
      __syncwarp();              // the lanes read what the others cleared
    }
    attend<Run>(running, q, mine + stage * S::kStageBytes, from, last, o.scale);
    __syncwarp();  // all have read the stage
    if (i + S::kStages < count) fetch(i + S::kStages);
  }

  // Warps meet: each leaves its sums where its ring was. A head's row is 68 long so that lanes, 4 g + t,
  // which write dimension g of head 2 t, meet 32 banks.
  constexpr int kRow = kDims + 4;
  static_assert(kGroup * kRow * 4 <= S::kRingBytes);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int other = 4; other < 32; other *= 2) running.sum[h] += __shfl_xor_sync(~0u, running.sum[h], other);
    float* to = reinterpret_cast<float*>(mine) + (lane % 4 * 2 + h) * kRow + lane / 4 * Run::kOfLane;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i * 16]                = running.out[i][h];
      to[i * 16 + Run::kOfHalf] = running.out[i][2 + h];
    }
    if (lane < 4) {
      most[warp][lane * 2 + h] = running.most[h];
      sum[warp][lane * 2 + h]  = running.sum[h];
    }
  }
  __syncthreads();  // all sums are there
  if (used > 1) ptx::cluster_wait();
  const int h = merged_head, d = threadIdx.x % (kDims / 4) * 4;
  static_assert(S::kThreads >= kGroup * kDims / 4);
  if (h >= o.group) return;
  Merged block;
  float block_most = most[0][h];
#pragma unroll
  for (int w = 1; w < S::kWarps; ++w) block_most = fmaxf(block_most, most[w][h]);
#pragma unroll
  for (int w = 0; w < S::kWarps; ++w)
    block.add(ptx::exp2_approximate(most[w][h] - block_most), sum[w][h],
              *reinterpret_cast<const float4*>(ring + w * S::kRingBytes + (h * kRow + d) * 4));

  if (split > 0) {
    const auto of_first = [](const void* here) {
      return ptx::address_in_block(ptx::shared_address(here), 0);
    };
    const uint32_t barrier = of_first(&parts_here);
    Part& part             = parts[split - 1];
    ptx::store_to_block(of_first(&part.out[h][d]), block.out, barrier);
    if (d == 0) ptx::store_to_block(of_first(&part.most_and_sum[h]), {block_most, block.sum, 0, 0}, barrier);
    return;
  }
  if (used > 1) ptx::mbarrier_wait(&parts_here, 0);
  float row_most = fmaxf(block_most, sink);
  for (int p = 0; p < used - 1; ++p) row_most = fmaxf(row_most, parts[p].most_and_sum[h].x);
  Merged row;
  row.add(ptx::exp2_approximate(block_most - row_most), block.sum, block.out);
  for (int p = 0; p < used - 1; ++p)
    row.add(ptx::exp2_approximate(parts[p].most_and_sum[h].x - row_most), parts[p].most_and_sum[h].y,
            *reinterpret_cast<const float4*>(&parts[p].out[h][d]));
  const float times                          = 1 / (row.sum + ptx::exp2_approximate(sink - row_most));
  reinterpret_cast<uint2*>(out)[threadIdx.x] = {pack(row.out.x * times, row.out.y * times),
                                                pack(row.out.z * times, row.out.w * times)};
}

// Few rows and heads have a multiprocessor each; of many, several share one, and some copy while others
// multiply.
template <class Run>
using Alone = Shape<Run, 8, 1>;
template <class Run>
using Shared = Shape<Run, 4, 3>;

// A row and head, `reach` positions, is cut into a power of two blocks. While those of all rows are at most
// half the multiprocessors (more gain nothing: clusters get into each other's way), it takes no more than a
// run for each of a block's warps; beyond that 1024 positions for each warp, some 20 us, so that a long row
// does not keep a batch of short ones waiting.
template <class S>
void launch(Attend<typename S::Run::Kv> o, int64_t kv_heads, int64_t count, int64_t reach, StreamRef stream) {
  const auto least = [&](int splits) {
    return S::kWarps * (2 * splits * count * kv_heads <= multiprocessors() ? 1 : 1024 / S::kKeys);
  };
  int splits = 1;
  while (splits < kCluster && int64_t{2} * splits * least(2 * splits) * S::kKeys <= reach) splits *= 2;
  o.least = least(splits);

  static const bool allowed = (allow_shared_memory(attend_few_kernel<S>, S::shared_bytes(kCluster)), true);
  static_cast<void>(allowed);
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(kv_heads),
                  static_cast<unsigned>(count));
  launch_chained(attend_few_kernel<S>, grid, dim3(S::kThreads), static_cast<size_t>(S::shared_bytes(splits)),
                 splits, stream, o);
}

template <class Run>
void attend_rows(View<const bf16, 3> q, const typename Run::Kv& kv, View<const float, 1> sinks, float scale,
                 int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                 StreamRef stream) {
  const int64_t count = q.extent(0), heads = q.extent(1);
  FATHOM_EXPECT(kv.heads > 0 && heads >= kv.heads && heads % kv.heads == 0 && heads / kv.heads <= kGroup,
                "attend_few: query heads must be 1 to 8 times the key-value heads");
  FATHOM_EXPECT(q.extent(2) == kDims && q.contiguous() && out.contiguous() && out.extent(0) == count &&
                    out.extent(1) == heads && out.extent(2) == kDims,
                "attend_few: q and out must be contiguous [T, Hq, 64]");
  FATHOM_EXPECT(sinks.extent(0) == heads && sinks.contiguous(), "attend_few: each query head has a sink");
  FATHOM_EXPECT(rows.positions.extent(0) == count && rows.sequence.extent(0) == count &&
                    rows.positions.contiguous() && rows.sequence.contiguous() && rows.pages.stride(1) == 1,
                "attend_few: positions and sequence must be [T], page tables rows of one piece");
  FATHOM_EXPECT(scale > 0 && window >= 0 && longest >= 0 && longest <= rows.pages.extent(1) * kTile,
                "attend_few: pages must reach as far as the longest row");
  FATHOM_EXPECT(count <= 65535, "attend_few: too many rows for its grid");
  if (count == 0) return;
  Attend<typename Run::Kv> o = {};
  o.q                        = q.data();
  o.kv                       = kv;
  o.sinks                    = sinks.data();
  o.scale                    = scale * kLog2E;
  o.window                   = static_cast<int>(window);
  o.rows                     = rows;
  o.out                      = out.data();
  o.query_heads              = static_cast<int>(heads);
  o.group                    = static_cast<int>(heads / kv.heads);

  const int64_t reach = window > 0 ? std::min(window, longest) : longest;
  if (count * kv.heads <= multiprocessors() && reach > Alone<Run>::kWarps * Run::kKeys)
    launch<Alone<Run>>(o, kv.heads, count, reach, stream);
  else
    launch<Shared<Run>>(o, kv.heads, count, reach, stream);
}

}  // namespace

void attend_few(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out, StreamRef stream) {
  if (const auto* fp8 = std::get_if<Fp8KvTiles>(&kv))
    attend_rows<Fp8Run<kKeys>>(q, *fp8, sinks, scale, window, rows, longest, out, stream);
  else
    attend_rows<Bf16Run<kKeys>>(q, std::get<KvTiles>(kv), sinks, scale, window, rows, longest, out, stream);
}

}  // namespace fathom::kernels
