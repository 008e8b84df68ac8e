// A stable counting sort of a few thousand expert rows by expert, and the gather of rows that follows from
// it.
//
// bytes   sort: 8 for each expert row; gather: 4 H for each
// limit   sort: latency of one CTA; gather: memory bandwidth
// idea    Each warp of the CTA has a run of expert rows, 32 at a time. It counts the experts of its run; by
//         ballots each of its lanes knows which other lanes have the same expert. A scan over experts, and
//         over the warps within an expert, turns counts into positions. Then the warps go over their runs
//         again: the position of a row is the warp's next one for the expert, plus the number of lower lanes
//         with the same expert.
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/moe/permute.h"

namespace fathom::kernels {
namespace {

constexpr int kWarps           = 32;
constexpr int kThreads         = 32 * kWarps;
constexpr int kExperts         = static_cast<int>(kMaxExperts);
constexpr int kCountsPerThread = kWarps * kExperts / kThreads;  // counts that a thread scans
constexpr int kLoadsInFlight   = 8;                             // loads of a lane in flight

// A mask of the lanes that have the same expert as this lane; negative experts are all the same. By a ballot
// for each bit of an expert's number.
__device__ unsigned lanes_with_same_expert(int e) {
  const unsigned negative = __ballot_sync(~0u, e < 0);
  unsigned same           = e < 0 ? negative : ~negative;
#pragma unroll
  for (int bit = 1; bit < kExperts; bit *= 2) {
    const unsigned set = __ballot_sync(~0u, e & bit);
    same &= e & bit ? set : ~set;
  }
  return same;
}

__global__ void __launch_bounds__(kThreads)
    sort_by_expert_kernel(const int32_t* __restrict__ experts, int expert_rows, int num_experts,
                          int32_t* offsets, int32_t* sorted_ids) {
  __shared__ int counts[kExperts][kWarps + 1];  // + 1 against bank conflicts
  __shared__ int sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int run = (expert_rows + kThreads - 1) / kThreads * 32, begin = warp * run,
            end = min(begin + run, expert_rows);

  for (int e = 0; e < kExperts; e += 32) counts[e + lane][warp] = 0;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  __syncwarp();

  // Calls f(expert row, its expert or -1, mask of the lanes with the same expert) for the run of this warp.
  // By all lanes of the warp together.
  const auto each = [&](auto f) {
    for (int base = begin; base < end; base += 32 * kLoadsInFlight) {
      int e[kLoadsInFlight];  // all loads are in flight at once
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        const int s     = base + 32 * i + lane;
        const int given = s < end ? experts[s] : -1;
        e[i]            = given < num_experts ? given : -1;
      }
#pragma unroll
      for (int i = 0; i < kLoadsInFlight; ++i) {
        if (base + 32 * i >= end) break;
        f(base + 32 * i + lane, e[i], lanes_with_same_expert(e[i]));
        __syncwarp();  // the next 32 rows see these counts
      }
    }
  };
  each([&](int, int e, unsigned same) {
    if (e >= 0 && lane == __ffs(same) - 1) counts[e][warp] += __popc(same);
  });
  __syncthreads();  // all counts are complete

  // An exclusive scan of the counts, in the order of experts and within an expert of warps, kCountsPerThread
  // consecutive ones for each thread. Counts become the positions of the warps' next rows.
  int* mine = &counts[threadIdx.x * kCountsPerThread / kWarps][threadIdx.x * kCountsPerThread % kWarps];
  int sum   = 0;
  for (int i = 0; i < kCountsPerThread; ++i) sum += mine[i];
  int before = warp_inclusive_sum(sum, lane);
  if (lane == 31) sums[warp] = before;
  __syncthreads();  // the warps' sums are complete
  for (int w = 0; w < warp; ++w) before += sums[w];
  before -= sum;
  for (int i = 0; i < kCountsPerThread; ++i) {
    const int count = mine[i];
    mine[i]         = before;
    before += count;
  }
  __syncthreads();  // all positions are complete

  if (threadIdx.x < num_experts) offsets[threadIdx.x] = counts[threadIdx.x][0];
  if (threadIdx.x == kThreads - 1) offsets[num_experts] = before;
  __syncthreads();  // they have been read before the warps advance them
  each([&](int s, int e, unsigned same) {
    if (e < 0) return;
    const int position                                       = counts[e][warp];
    sorted_ids[position + __popc(same & ((1u << lane) - 1))] = s;
    __syncwarp(same);  // all lanes of the mask have read it
    if (lane == __ffs(same) - 1) counts[e][warp] = position + __popc(same);
  });
}

constexpr int kRowsPerCta = 4;  // one for each warp

__global__ void __launch_bounds__(32 * kRowsPerCta)
    gather_rows_kernel(View<const bf16, 2> x, ExpertRows rows, int top_k, View<bf16, 2> sorted) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int i = blockIdx.x * kRowsPerCta + threadIdx.y;
  if (i >= rows.offsets(rows.offsets.extent(0) - 1)) return;
  const auto* from  = reinterpret_cast<const uint4*>(&x(rows.sorted_ids(i) / top_k, 0));
  auto* to          = reinterpret_cast<uint4*>(&sorted(i, 0));
  const int vectors = static_cast<int>(x.extent(1) / 8);
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += 32) to[v] = from[v];
}

}  // namespace

void sort_by_expert(View<const int32_t, 2> experts, View<int32_t, 1> offsets, View<int32_t, 1> sorted_ids,
                    StreamRef stream) {
  const int64_t num_experts = offsets.extent(0) - 1;
  FATHOM_EXPECT(experts.contiguous() && offsets.contiguous() && sorted_ids.contiguous() &&
                    sorted_ids.extent(0) == experts.size() && experts.size() <= INT32_MAX - kThreads,
                "sort_by_expert: experts is [T, top_k] and sorted_ids [T top_k], contiguous");
  FATHOM_EXPECT(num_experts >= 1 && num_experts <= kMaxExperts, "sort_by_expert: 1 to 128 experts");
  launch_with_pdl(sort_by_expert_kernel, 1, kThreads, 0, stream, experts.data(),
                  static_cast<int>(experts.size()), static_cast<int>(num_experts), offsets.data(),
                  sorted_ids.data());
}

void gather_rows(View<const bf16, 2> x, const ExpertRows& rows, int64_t top_k, View<bf16, 2> sorted,
                 StreamRef stream) {
  FATHOM_EXPECT(sorted.extent(0) == x.extent(0) * top_k && rows.sorted_ids.extent(0) == sorted.extent(0) &&
                    sorted.extent(1) == x.extent(1),
                "gather_rows: x is [T, H], sorted [T top_k, H], sorted_ids [T top_k]");
  const auto aligned = [](auto view) {
    return reinterpret_cast<uintptr_t>(view.data()) % 16 == 0 && view.stride(0) % 8 == 0 &&
           view.stride(1) == 1 && view.extent(1) % 8 == 0;
  };
  FATHOM_EXPECT(aligned(x) && aligned(sorted), "gather_rows: rows are vectors of 16 bytes");
  if (sorted.extent(0) == 0) return;
  launch_with_pdl(gather_rows_kernel, blocks_for(sorted.extent(0), kRowsPerCta), dim3(32, kRowsPerCta), 0,
                  stream, x, rows, static_cast<int>(top_k), sorted);
}

}  // namespace fathom::kernels
