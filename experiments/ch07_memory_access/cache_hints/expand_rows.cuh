// table(id), 16 threads a row and four rows in a row a thread, so that four loads of 16 bytes are in flight
// in each.
#pragma once

#include "cuda/check.h"
#include "expand.h"

namespace fathom::lab::cache_hints {

constexpr int kThreads   = 256;
constexpr int kVectors   = kWidth / 4;  // of a row
constexpr int kRows      = 4;           // of a thread
constexpr int kBlockRows = kThreads / kVectors * kRows;

// Access: how the table is loaded and the result stored.
template <class Access>
__global__ void __launch_bounds__(kThreads)
    expand_rows_kernel(const int32_t* __restrict__ id, const float4* __restrict__ table,
                       float4* __restrict__ out, int n) {
  const int first  = (blockIdx.x * (kThreads / kVectors) + threadIdx.x / kVectors) * kRows;
  const int vector = threadIdx.x % kVectors;
  out += vector;
  table += vector;
  if (first + kRows <= n) {
    const int4 ids        = *reinterpret_cast<const int4*>(id + first);
    const int from[kRows] = {ids.x, ids.y, ids.z, ids.w};
    float4 v[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) v[k] = Access::load(table + from[k] * kVectors);
#pragma unroll
    for (int k = 0; k < kRows; ++k) Access::store(out + (first + k) * kVectors, v[k]);
  } else {  // the last rows
#pragma unroll 1
    for (int row = first; row < n; ++row)
      Access::store(out + row * kVectors, Access::load(table + id[row] * kVectors));
  }
}

template <class Access>
void expand_rows(const Expand& p, StreamRef stream) {
  const int n = static_cast<int>(p.out.extent(0));
  if (n == 0) return;
  expand_rows_kernel<Access><<<blocks_for(n, kBlockRows), kThreads, 0, stream>>>(
      p.id.data(), reinterpret_cast<const float4*>(p.table.data()), reinterpret_cast<float4*>(p.out.data()),
      n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::cache_hints
