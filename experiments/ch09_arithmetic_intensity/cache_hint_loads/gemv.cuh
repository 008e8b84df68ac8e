// A block for kRows rows of the matrix; how the matrix is loaded is the variant's. `Load` has
//   static uint2 four(const uint2*)     4 bf16
//   kRowsAhead                          how far ahead of its own a block has a row fetched into L2; 0: none
#pragma once

#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "gemv.h"

namespace fathom::lab::cache_hint_loads {

inline constexpr int kThreads = 1024;
inline constexpr int kBlocks  = 2;  // on a multiprocessor

// Does not allocate in L1, and fetches 256 bytes into L2 for every 32 requested.
__device__ inline uint2 four_past_l1(const uint2* from) {
  uint2 v;
  asm("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}

// Bulk prefetches take multiples of 16 bytes; the loads fetch the rest.
__device__ inline void prefetch_into_l2(const void* from, int bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#endif
}

// 4 elements of each row and of x at a time: 8 bytes a lane and 16, so that a warp reads both without gaps.
// Where rows do not begin at multiples of 8 bytes, one by one.
template <class Load, int kRows, bool kFours>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gemv_kernel(View<const bf16, 2> a, View<const float, 1> x, View<float, 1> out) {
  __shared__ rows::Partial<kThreads> partial[kRows];
  const int k     = static_cast<int>(a.extent(1));
  const int first = blockIdx.x * kRows, last = static_cast<int>(a.extent(0)) - 1;
  if constexpr (Load::kRowsAhead > 0)
    if (threadIdx.x == 0 && first + Load::kRowsAhead <= last)
      prefetch_into_l2(a.data() + (first + Load::kRowsAhead) * a.stride(0), k * 2);
  const bf16* row[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)  // rows beyond the last are computed as copies of it, and not written
    row[r] = a.data() + min(first + r, last) * a.stride(0);

  float sums[kRows] = {};
  if constexpr (kFours) {
#pragma unroll(kRows == 1 ? 5 : 1)
    for (int i = threadIdx.x; i < k / 4; i += kThreads) {
      uint2 four[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) four[r] = Load::four(reinterpret_cast<const uint2*>(row[r]) + i);
      const float4 v = __ldg(reinterpret_cast<const float4*>(x.data()) + i);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[r] = fmaf(rows::low(four[r].x), v.x, sums[r]);
        sums[r] = fmaf(rows::high(four[r].x), v.y, sums[r]);
        sums[r] = fmaf(rows::low(four[r].y), v.z, sums[r]);
        sums[r] = fmaf(rows::high(four[r].y), v.w, sums[r]);
      }
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < k; i += kThreads)
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        sums[r] = fmaf(rows::load<1>(row[r] + i).at[0], __ldg(x.data() + i), sums[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) rows::put(rows::over_warp(sums[r], rows::Plus{}), partial[r]);
  __syncthreads();  // all warps have written before any reads
  // A warp for each row, a lane for the partial sum of each of the 32 warps.
  const int r = threadIdx.x / 32;
  if (r >= kRows) return;
  const float sum = rows::over_warp(partial[r].of_warp[threadIdx.x % 32], rows::Plus{});
  if (threadIdx.x % 32 == 0 && first + r <= last) out(first + r) = sum;
}

template <class Load, int kRows = 1>
void launch(const Gemv& p, StreamRef stream) {
  static_assert(kThreads == 32 * 32);
  if (p.a.size() == 0) return;
  FATHOM_EXPECT(p.a.extent(0) < (int64_t{1} << 30) && p.a.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  const bool fours = p.a.extent(1) % 4 == 0 && p.a.stride(0) % 4 == 0 && rows::aligned(p.a.data(), 8) &&
                     rows::aligned(p.x.data(), 16);
  const auto kernel = fours ? gemv_kernel<Load, kRows, true> : gemv_kernel<Load, kRows, false>;
  kernel<<<blocks_for(p.a.extent(0), kRows), kThreads, 0, stream>>>(p.a, p.x, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::cache_hint_loads
