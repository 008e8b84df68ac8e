// x(t, .) += sum_k slots(t, k, .);  y(t, h) = x(t, h) weight(h) / sqrt(mean_h x(t, h)^2 + eps)     y in bf16
//
// bytes   a row of H = 2880 with 4 slots: x 23 KB, slots 46 KB, y 6 KB
// flops   8 H
// limit   DRAM bandwidth: 8192 rows move 613 MB, 0.14 ms at 4.3 TB/s. A single row: latency, and the 64 bytes
//         a clock that one multiprocessor gets from L2
// idea    a row lies in the registers of its threads. Few rows: a cluster of blocks shares one, so that
//         several multiprocessors fetch it; each warp stores its sum of squares in all of them. Many rows: a
//         block each. A sum is over 128 neighbours first and over those pieces then, whoever has them: a
//         row's bits are the same in both
#include <cuda_bf16.h>

#include "core/cuda.h"
#include "core/launch.cuh"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"
#include "kernels/fold_norm.h"

namespace fathom::kernels {
namespace {

constexpr int kVectors = 768;            // of 4 floats: of the widest row
constexpr int kPieces  = kVectors / 32;  // a vector for each lane of a warp
constexpr int kSlots   = 4;              // on their way at once

struct Fold {
  float* x;
  const float* slots;
  const int32_t* rows;  // null: every row, and x is written
  const float* weight;
  bf16* y;
  int width, top_k;
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

__device__ float over_warp(float sum) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

// A row for each cluster of kBlocks blocks.
template <int kBlocks, int kThreads>
__global__ void __launch_bounds__(kThreads) fold_kernel(const Fold o) {
  constexpr int kEach = kVectors / (kBlocks * kThreads);  // vectors of a thread, kThreads apart
  static_assert(kEach * kBlocks * kThreads == kVectors && kThreads % 32 == 0);
  __shared__ float4 squares[kPieces];  // in .x: 16 bytes are what one block stores in another
  __shared__ uint64_t squares_here;
  const int lane = threadIdx.x % 32, rank = blockIdx.x % kBlocks;
  const int first   = rank * kThreads * kEach + threadIdx.x;
  const int vectors = o.width / 4;
  const auto inside = [&](int e) { return first + e * kThreads < vectors; };

  if (kBlocks > 1) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&squares_here, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(&squares_here, sizeof(squares));
    }
    __syncwarp();
    ptx::cluster_arrive();  // others may store here once they have waited
  }
  float4 by[kEach] = {};
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (inside(e)) by[e] = __ldg(reinterpret_cast<const float4*>(o.weight) + first + e * kThreads);
  const int64_t to  = blockIdx.x / kBlocks;
  const int64_t row = o.rows ? o.rows[to] : to;
  ptx::let_next_begin();
  ptx::wait_for_previous();

  float4 v[kEach] = {};
  if (row >= 0) {
    float4* const x = reinterpret_cast<float4*>(o.x) + row * vectors + first;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (inside(e)) v[e] = x[e * kThreads];
    for (int k = 0; k < o.top_k; k += kSlots) {
      float4 s[kSlots][kEach] = {};
#pragma unroll
      for (int i = 0; i < kSlots; ++i)
#pragma unroll
        for (int e = 0; e < kEach; ++e)
          if (k + i < o.top_k && inside(e))
            s[i][e] = reinterpret_cast<const float4*>(
                o.slots)[(row * o.top_k + k + i) * vectors + first + e * kThreads];
#pragma unroll
      for (int e = 0; e < kEach; ++e) v[e] = v[e] + (s[0][e] + s[1][e] + s[2][e] + s[3][e]);
    }
    if (!o.rows && o.top_k > 0)
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (inside(e)) x[e * kThreads] = v[e];
  }

  if (kBlocks > 1) ptx::cluster_wait();  // the others' squares_here can be used
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const float sum  = over_warp(square(v[e]));
    float4* const at = &squares[(first + e * kThreads) / 32];
    if (kBlocks == 1 && lane == 0) at->x = sum;
    if (kBlocks > 1 && lane < kBlocks)
      ptx::store_to_block(ptx::address_in_block(ptx::shared_address(at), lane), {sum, 0, 0, 0},
                          ptx::address_in_block(ptx::shared_address(&squares_here), lane));
  }
  if (kBlocks == 1) __syncthreads();  // all pieces' sums are there
  if (kBlocks > 1) ptx::mbarrier_wait(&squares_here, 0);
  const float mean  = over_warp(lane < kPieces ? squares[lane].x : 0) / static_cast<float>(o.width);
  const float scale = rsqrtf(mean + o.eps);

  uint2* const y = reinterpret_cast<uint2*>(o.y) + to * vectors + first;
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (inside(e))
      y[e * kThreads] = {pack(v[e].x * scale * by[e].x, v[e].y * scale * by[e].y),
                         pack(v[e].z * scale * by[e].z, v[e].w * scale * by[e].w)};
}

template <int kBlocks, int kThreads>
void launch(const Fold& o, int64_t rows, StreamRef stream) {
  launch_chained(fold_kernel<kBlocks, kThreads>, dim3(static_cast<unsigned>(rows * kBlocks)), dim3(kThreads),
                 0, kBlocks, stream, o);
}

bool of_vectors(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

void fold(float* x, int64_t x_rows, View<const float, 3> slots, const int32_t* rows,
          View<const float, 1> weight, float eps, View<bf16, 2> y, StreamRef stream) {
  const int64_t count = y.extent(0), width = y.extent(1);
  FATHOM_EXPECT(weight.extent(0) == width &&
                    (slots.size() == 0 || (slots.extent(0) == x_rows && slots.extent(2) == width)),
                "fold: x is [T, H], slots [T, top_k, H], weight [H], y of width H");
  FATHOM_EXPECT(width % 4 == 0 && width <= 4 * kVectors && eps > 0 && slots.contiguous() &&
                    weight.contiguous() && y.contiguous() && of_vectors(x) && of_vectors(slots.data()) &&
                    of_vectors(weight.data()) && of_vectors(y.data()),
                "fold: rows of at most 3072, whole vectors of 16 bytes, one after another; eps above 0");
  if (y.size() == 0) return;
  FATHOM_EXPECT(count <= INT32_MAX / 8, "fold: the kernel counts in 32 bits");
  const Fold o{x,
               slots.data(),
               rows,
               weight.data(),
               y.data(),
               static_cast<int>(width),
               slots.size() == 0 ? 0 : static_cast<int>(slots.extent(1)),
               eps};
  if (4 * count <= multiprocessors()) return launch<4, 192>(o, count, stream);
  launch<1, 192>(o, count, stream);
}

}  // namespace

void fold_and_normalize(View<float, 2> x, View<const float, 3> slots, View<const float, 1> weight, float eps,
                        View<bf16, 2> y, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1) && x.contiguous(),
                "fold: x and y are [T, H], row after row");
  fold(x.data(), x.extent(0), slots, nullptr, weight, eps, y, stream);
}

void fold_and_normalize_rows(View<const float, 2> x, View<const float, 3> slots, View<const int32_t, 1> rows,
                             View<const float, 1> weight, float eps, View<bf16, 2> y, StreamRef stream) {
  FATHOM_EXPECT(x.extent(1) == y.extent(1) && x.contiguous() && rows.extent(0) == y.extent(0) &&
                    rows.contiguous() && (rows.data() || y.size() == 0),
                "fold: x is [T, H], rows [R], y [R, H], row after row");
  fold(const_cast<float*>(x.data()), x.extent(0), slots, rows.data(), weight, eps, y, stream);  // read only
}

}  // namespace fathom::kernels
