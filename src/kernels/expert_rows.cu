// A stable counting sort of a few thousand small numbers, and the copies of rows that follow from it.
//
// bytes   sort: 8 of a slot; gather: 4 H of a row
// limit   sort: latency, of one block; gather: memory bandwidth
// idea    each warp of the block has a run of slots, 32 at a time. It counts the experts of its run, each of
//         the 32 lanes knowing by ballots which others have its expert. A scan over experts,
//         and over warps within an expert, turns counts into places; the warps go over their runs again, and
//         the place of a slot is that of its warp's next one, plus how many lanes before it have its expert.
#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/ptx.cuh"
#include "kernels/expert_rows.h"

namespace fathom::kernels {
namespace {

constexpr int kWarps   = 32;
constexpr int kThreads = 32 * kWarps;
constexpr int kExperts = static_cast<int>(kMaxExperts);
constexpr int kEach    = kWarps * kExperts / kThreads;  // counts of a thread in the scan
constexpr int kAtOnce  = 8;                             // loads of a lane under way

// The lanes whose number is this lane's in the bits that experts have, or negative as this lane's is: by a
// ballot for each bit.
__device__ unsigned same_as_mine(int e) {
  const unsigned negative = __ballot_sync(~0u, e < 0);
  unsigned same           = e < 0 ? negative : ~negative;
#pragma unroll
  for (int bit = 1; bit < kExperts; bit *= 2) {
    const unsigned set = __ballot_sync(~0u, e & bit);
    same &= e & bit ? set : ~set;
  }
  return same;
}

__global__ void __launch_bounds__(kThreads) sort_kernel(const int32_t* __restrict__ experts, int slots,
                                                        int num_experts, int32_t* first, int32_t* slot) {
  __shared__ int counts[kExperts][kWarps + 1];  // + 1: experts of a warp are in different banks
  __shared__ int sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int run = (slots + kThreads - 1) / kThreads * 32, begin = warp * run, end = min(begin + run, slots);

  for (int e = 0; e < kExperts; e += 32) counts[e + lane][warp] = 0;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  __syncwarp();

  // Calls f with each slot, its expert or -1, and the lanes that have the same. All lanes of the warp
  // together.
  const auto each = [&](auto f) {
    for (int base = begin; base < end; base += 32 * kAtOnce) {
      int e[kAtOnce];  // all on their way at once
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int s     = base + 32 * i + lane;
        const int given = s < end ? experts[s] : -1;
        e[i]            = given < num_experts ? given : -1;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (base + 32 * i >= end) break;
        f(base + 32 * i + lane, e[i], same_as_mine(e[i]));
        __syncwarp();  // counts of these 32 are there for the next
      }
    }
  };
  each([&](int, int e, unsigned same) {
    if (e >= 0 && lane == __ffs(same) - 1) counts[e][warp] += __popc(same);
  });
  __syncthreads();  // all counts

  // Counts in the order of experts, those of an expert in that of warps, kEach in a row for each thread,
  // become the places of the warps' next slots.
  int* mine = &counts[threadIdx.x * kEach / kWarps][threadIdx.x * kEach % kWarps];
  int sum   = 0;
  for (int i = 0; i < kEach; ++i) sum += mine[i];
  int before = sum;  // of this thread and those of its warp before it
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) sums[warp] = before;
  __syncthreads();  // the warps' sums
  for (int w = 0; w < warp; ++w) before += sums[w];
  before -= sum;
  for (int i = 0; i < kEach; ++i) {
    const int count = mine[i];
    mine[i]         = before;
    before += count;
  }
  __syncthreads();  // all places

  if (threadIdx.x < num_experts) first[threadIdx.x] = counts[threadIdx.x][0];
  if (threadIdx.x == kThreads - 1) first[num_experts] = before;
  __syncthreads();  // which the warps move on now
  each([&](int s, int e, unsigned same) {
    if (e < 0) return;
    const int place                                 = counts[e][warp];
    slot[place + __popc(same & ((1u << lane) - 1))] = s;
    __syncwarp(same);  // all of them have read it
    if (lane == __ffs(same) - 1) counts[e][warp] = place + __popc(same);
  });
}

constexpr int kRowsOfBlock = 4;  // a warp each

__global__ void __launch_bounds__(32 * kRowsOfBlock)
    gather_kernel(View<const bf16, 2> x, ExpertRows rows, int top_k, View<bf16, 2> sorted) {
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const int i = blockIdx.x * kRowsOfBlock + threadIdx.y;
  if (i >= rows.first(rows.first.extent(0) - 1)) return;
  const auto* from  = reinterpret_cast<const uint4*>(&x(rows.slot(i) / top_k, 0));
  auto* to          = reinterpret_cast<uint4*>(&sorted(i, 0));
  const int vectors = static_cast<int>(x.extent(1) / 8);
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += 32) to[v] = from[v];
}

}  // namespace

void sort_by_expert(View<const int32_t, 2> experts, View<int32_t, 1> first, View<int32_t, 1> slot,
                    StreamRef stream) {
  const int64_t num_experts = first.extent(0) - 1;
  FATHOM_EXPECT(experts.contiguous() && first.contiguous() && slot.contiguous() &&
                    slot.extent(0) == experts.size() && experts.size() <= INT32_MAX - kThreads,
                "sort_by_expert: experts is [T, top_k] and slot [T top_k], contiguous");
  FATHOM_EXPECT(num_experts >= 1 && num_experts <= kMaxExperts, "sort_by_expert: 1 to 128 experts");
  launch_chained(sort_kernel, 1, kThreads, 0, stream, experts.data(), static_cast<int>(experts.size()),
                 static_cast<int>(num_experts), first.data(), slot.data());
}

void gather_rows(View<const bf16, 2> x, const ExpertRows& rows, int64_t top_k, View<bf16, 2> sorted,
                 StreamRef stream) {
  FATHOM_EXPECT(sorted.extent(0) == x.extent(0) * top_k && rows.slot.extent(0) == sorted.extent(0) &&
                    sorted.extent(1) == x.extent(1),
                "gather_rows: x is [T, H], sorted [T top_k, H], slot [T top_k]");
  const auto aligned = [](auto view) {
    return reinterpret_cast<uintptr_t>(view.data()) % 16 == 0 && view.stride(0) % 8 == 0 &&
           view.stride(1) == 1 && view.extent(1) % 8 == 0;
  };
  FATHOM_EXPECT(aligned(x) && aligned(sorted), "gather_rows: rows are vectors of 16 bytes");
  if (sorted.extent(0) == 0) return;
  launch_chained(gather_kernel, blocks_for(sorted.extent(0), kRowsOfBlock), dim3(32, kRowsOfBlock), 0, stream,
                 x, rows, static_cast<int>(top_k), sorted);
}

}  // namespace fathom::kernels
