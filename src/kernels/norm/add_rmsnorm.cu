// x(t, .) += sum_k expert_outputs(t, k, .)
// y(t, h) = x(t, h) weight(h) / sqrt(mean_h x(t, h)^2 + eps)          y in bf16
//
// bytes   a row of H = 2880 with 4 expert outputs: x 23 KB, expert outputs 46 KB, y 6 KB
// flops   8 H
// limit   DRAM bandwidth: 8192 rows move 613 MB, 0.14 ms at 4.3 TB/s. A single row: latency, and the 64 bytes
//         a clock that one multiprocessor gets from L2
// idea    A row lies in the registers of its threads. Few rows: a cluster of CTAs shares a row, so that
//         several multiprocessors fetch it, and each warp stores its sum of squares in all of them. Many
//         rows: one CTA each. Squares are summed over pieces of 128 numbers first and then over the pieces,
//         whichever thread has them, so that a row's bits are the same in both cases
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "kernels/alignment.h"
#include "kernels/norm/add_rmsnorm.h"
#include "kernels/norm/sum_of_squares.cuh"

namespace fathom::kernels {
namespace {

constexpr int kMaxVectors      = 768;               // of 4 floats: the widest row
constexpr int kPieces          = kMaxVectors / 32;  // a piece is a vector for each lane of a warp
constexpr int kOutputsInFlight = 4;                 // expert outputs that a thread loads at once

struct AddRmsnorm {
  float* x;
  const float* expert_outputs;
  const int32_t* rows;  // null: all rows, and x is stored
  const float* weight;
  bf16* y;
  int width, top_k;
  float eps;
};

// One row for each cluster of kClusterSize CTAs.
template <int kClusterSize, int kThreads>
__global__ void __launch_bounds__(kThreads) add_rmsnorm_bf16_kernel(const AddRmsnorm o) {
  constexpr int kVectorsPerThread = kMaxVectors / (kClusterSize * kThreads);  // kThreads apart
  static_assert(kVectorsPerThread * kClusterSize * kThreads == kMaxVectors && kThreads % 32 == 0);
  __shared__ float4 squares[kPieces];  // in .x: st.async stores 16 bytes
  __shared__ uint64_t squares_arrived;
  const int lane = threadIdx.x % 32, rank = blockIdx.x % kClusterSize;
  const int first   = rank * kThreads * kVectorsPerThread + threadIdx.x;
  const int vectors = o.width / 4;
  const auto inside = [&](int e) { return first + e * kThreads < vectors; };

  if (kClusterSize > 1) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&squares_arrived, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(&squares_arrived, sizeof(squares));
    }
    __syncwarp();
    ptx::cluster_barrier_arrive();  // the other CTAs may store here once they have waited
  }
  float4 weight[kVectorsPerThread] = {};
#pragma unroll
  for (int e = 0; e < kVectorsPerThread; ++e)
    if (inside(e)) weight[e] = __ldg(reinterpret_cast<const float4*>(o.weight) + first + e * kThreads);
  const int64_t out_row = blockIdx.x / kClusterSize;
  const int64_t row     = o.rows ? o.rows[out_row] : out_row;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  float4 v[kVectorsPerThread] = {};
  if (row >= 0) {
    float4* const x = reinterpret_cast<float4*>(o.x) + row * vectors + first;
#pragma unroll
    for (int e = 0; e < kVectorsPerThread; ++e)
      if (inside(e)) v[e] = x[e * kThreads];
    for (int k = 0; k < o.top_k; k += kOutputsInFlight) {
      float4 s[kOutputsInFlight][kVectorsPerThread] = {};
#pragma unroll
      for (int i = 0; i < kOutputsInFlight; ++i)
#pragma unroll
        for (int e = 0; e < kVectorsPerThread; ++e)
          if (k + i < o.top_k && inside(e))
            s[i][e] = reinterpret_cast<const float4*>(
                o.expert_outputs)[(row * o.top_k + k + i) * vectors + first + e * kThreads];
#pragma unroll
      for (int e = 0; e < kVectorsPerThread; ++e) v[e] = v[e] + (s[0][e] + s[1][e] + s[2][e] + s[3][e]);
    }
    if (!o.rows && o.top_k > 0)
#pragma unroll
      for (int e = 0; e < kVectorsPerThread; ++e)
        if (inside(e)) x[e * kThreads] = v[e];
  }

  if (kClusterSize > 1) ptx::cluster_barrier_wait();  // squares_arrived of the other CTAs is initialised
#pragma unroll
  for (int e = 0; e < kVectorsPerThread; ++e) {
    const float sum  = warp_reduce_sum(sum_of_squares(v[e]));
    float4* const at = &squares[(first + e * kThreads) / 32];
    if (kClusterSize == 1 && lane == 0) at->x = sum;
    if (kClusterSize > 1 && lane < kClusterSize)
      ptx::st_async_v4(ptx::mapa_shared_cluster(ptx::shared_address(at), lane), {sum, 0, 0, 0},
                       ptx::mapa_shared_cluster(ptx::shared_address(&squares_arrived), lane));
  }
  if (kClusterSize == 1) __syncthreads();  // all pieces' sums are in shared memory
  if (kClusterSize > 1) ptx::mbarrier_wait(&squares_arrived, 0);
  const float mean  = warp_reduce_sum(lane < kPieces ? squares[lane].x : 0) / static_cast<float>(o.width);
  const float scale = rsqrtf(mean + o.eps);

  uint2* const y = reinterpret_cast<uint2*>(o.y) + out_row * vectors + first;
#pragma unroll
  for (int e = 0; e < kVectorsPerThread; ++e)
    if (inside(e))
      y[e * kThreads] = {pack_bf16x2(v[e].x * scale * weight[e].x, v[e].y * scale * weight[e].y),
                         pack_bf16x2(v[e].z * scale * weight[e].z, v[e].w * scale * weight[e].w)};
}

template <int kClusterSize, int kThreads>
void launch(const AddRmsnorm& o, int64_t rows, StreamRef stream) {
  launch_with_pdl(add_rmsnorm_bf16_kernel<kClusterSize, kThreads>,
                  dim3(static_cast<unsigned>(rows * kClusterSize)), dim3(kThreads), 0, kClusterSize, stream,
                  o);
}

void launch_add_rmsnorm(float* x, int64_t x_rows, View<const float, 3> expert_outputs, const int32_t* rows,
                        View<const float, 1> weight, float eps, View<bf16, 2> y, StreamRef stream) {
  const int64_t count = y.extent(0), width = y.extent(1);
  FATHOM_EXPECT(weight.extent(0) == width &&
                    (expert_outputs.size() == 0 ||
                     (expert_outputs.extent(0) == x_rows && expert_outputs.extent(2) == width)),
                "add_rmsnorm: x is [T, H], expert_outputs [T, top_k, H], weight [H], y of width H");
  FATHOM_EXPECT(
      width % 4 == 0 && width <= 4 * kMaxVectors && eps > 0 && expert_outputs.contiguous() &&
          weight.contiguous() && y.contiguous() && aligned_to_16(x) && aligned_to_16(expert_outputs.data()) &&
          aligned_to_16(weight.data()) && aligned_to_16(y.data()),
      "add_rmsnorm: rows of at most 3072, whole vectors of 16 bytes, one after another; eps above 0");
  if (y.size() == 0) return;
  FATHOM_EXPECT(count <= INT32_MAX / 8, "add_rmsnorm: the kernel counts in 32 bits");
  const AddRmsnorm o{x,
                     expert_outputs.data(),
                     rows,
                     weight.data(),
                     y.data(),
                     static_cast<int>(width),
                     expert_outputs.size() == 0 ? 0 : static_cast<int>(expert_outputs.extent(1)),
                     eps};
  if (4 * count <= multiprocessors()) return launch<4, 192>(o, count, stream);
  launch<1, 192>(o, count, stream);
}

}  // namespace

void add_rmsnorm(View<float, 2> x, View<const float, 3> expert_outputs, View<const float, 1> weight,
                 float eps, View<bf16, 2> y, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1) && x.contiguous(),
                "add_rmsnorm: x and y are [T, H], row after row");
  launch_add_rmsnorm(x.data(), x.extent(0), expert_outputs, nullptr, weight, eps, y, stream);
}

void add_rmsnorm_rows(View<const float, 2> x, View<const float, 3> expert_outputs,
                      View<const int32_t, 1> rows, View<const float, 1> weight, float eps, View<bf16, 2> y,
                      StreamRef stream) {
  FATHOM_EXPECT(x.extent(1) == y.extent(1) && x.contiguous() && rows.extent(0) == y.extent(0) &&
                    rows.contiguous() && (rows.data() || y.size() == 0),
                "add_rmsnorm: x is [T, H], rows [R], y [R, H], row after row");
  launch_add_rmsnorm(const_cast<float*>(x.data()), x.extent(0), expert_outputs, rows.data(), weight, eps, y,
                     stream);  // read only
}

}  // namespace fathom::kernels
