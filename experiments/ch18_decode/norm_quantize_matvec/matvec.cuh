// out(t, n) = scale(t) row_scale(n) sum_k code(t, k) w(n, k)      e4m3, up to 8 rows t
//
// A CTA has 16 outputs: the rows of an mma whose columns are the rows t. Its 8 warps deal out K among them,
// 64 inputs a step, and add up their sums at the end. Any order of k gives the same sum of products, so a
// lane takes 16 consecutive codes of a weight row, where the mma's layout has four times 4, and the same ones
// of x.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "layers.h"
#include "norm_quantize.cuh"

namespace fathom::lab::norm_quantize_matvec {

inline constexpr int kMaxSharedBytes = 220 * 1024;
inline constexpr int kOutputs = 16, kStep = 64;  // rows of an mma; inputs of a step: two mmas of 32

// d += a b, 16 x 32 and 32 x 8 of e4m3. Registers as mma_m16n8k16 has them (cuda/ptx.cuh), with four codes
// for two bf16 numbers.
__device__ inline void mma_m16n8k32_e4m3(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  __trap();  // e4m3 begins with sm_89
#endif
}

// Codes and scales as earlier kernels left them.
struct Quantized {
  const fp8_e4m3* codes;  // rows x inputs
  const float* scales;
  int rows, inputs;
};
template <int kRows, class Store>
__device__ float bring_rows(const Quantized& in, int vectors, const Store& store) {
  constexpr int kThreadsOfRow = kThreads / kRows;
  const int row = threadIdx.x / kThreadsOfRow, of_row = row < in.rows ? in.inputs / 8 : 0;
  const uint2* const codes = reinterpret_cast<const uint2*>(in.codes + int64_t{row} * in.inputs);
#pragma unroll 4
  for (int v = threadIdx.x % kThreadsOfRow; v < vectors; v += kThreadsOfRow)
    store(row, v, v < of_row ? codes[v] : uint2{});
  return row < in.rows ? in.scales[row] : 0;
}
template <int kRows, class Store>
__device__ float bring_rows(const NormInput& in, int vectors, const Store& store) {
  return norm_quantize<kRows>(in, vectors, store);
}

// Shared memory: the weights of the CTA's outputs, then rows of codes. A row of codes has whole steps, and 64
// bytes more than a multiple of 128, so that lanes of two rows use all banks; weights lie as in memory, where
// inputs that are a multiple of 128 cost two ways of conflicts.
__host__ __device__ inline int row_bytes(int inputs) {
  const int whole = (inputs + kStep - 1) / kStep * kStep;
  return whole % 128 == 0 ? whole + 64 : whole;
}
__host__ __device__ inline int weight_bytes(int inputs) { return kOutputs * inputs; }

// Input: Quantized, or NormInput where norm and quantisation are fused into this kernel. kWeightsFirst: the
// weights are asked for before the rows, which nobody needs to have written for that.
template <int kRows, class Input, bool kWeightsFirst>
__global__ void __launch_bounds__(kThreads, 3)
    matvec_kernel(const Input in, const fp8_e4m3* w, const float* row_scales, float* out, int outputs) {
  extern __shared__ __align__(128) uint8_t weights[];
  __shared__ float scales[kRows], partial[kWarps][kOutputs][kRows];
  __shared__ uint64_t arrived;
  uint8_t* const codes = weights + weight_bytes(in.inputs);
  ptx::griddepcontrol_launch_dependents();  // the next layer may ask for its weights as soon as there is room
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_output = blockIdx.x * kOutputs, steps = (in.inputs + kStep - 1) / kStep;
  const int stride = row_bytes(in.inputs);

  const auto ask_for_weights = [&] {
    ptx::mbarrier_arrive_expect_tx(&arrived, weight_bytes(in.inputs));
    ptx::cp_async_bulk_load(weights, w + int64_t{first_output} * in.inputs, weight_bytes(in.inputs),
                            &arrived);
  };
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, 1);
    ptx::fence_mbarrier_init();
    if (kWeightsFirst) ask_for_weights();
  }
  ptx::griddepcontrol_wait();  // x is there
  const float scale = bring_rows<kRows>(in, steps * kStep / 8, [&](int row, int vector, uint2 eight) {
    *reinterpret_cast<uint2*>(codes + row * stride + vector * 8) = eight;
  });
  if (threadIdx.x % (kThreads / kRows) == 0) scales[threadIdx.x / (kThreads / kRows)] = scale;
  __syncthreads();  // all codes and scales are in shared memory, and the barrier is ready
  if (!kWeightsFirst && threadIdx.x == 0) ask_for_weights();
  ptx::mbarrier_wait(&arrived, 0);

  float sums[4] = {};  // outputs g and g + 8 of rows 2 t and 2 t + 1
#pragma unroll 2
  for (int step = warp; step < steps; step += kWarps) {
    const int k = step * kStep + 16 * t;
    uint4 low = {}, high = {}, x = {};
    if (k < in.inputs) {
      low  = *reinterpret_cast<const uint4*>(weights + g * in.inputs + k);
      high = *reinterpret_cast<const uint4*>(weights + (g + 8) * in.inputs + k);
      if (g < kRows) x = *reinterpret_cast<const uint4*>(codes + g * stride + k);
    }
    mma_m16n8k32_e4m3(sums, low.x, high.x, low.y, high.y, x.x, x.y);
    mma_m16n8k32_e4m3(sums, low.z, high.z, low.w, high.w, x.z, x.w);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (2 * t + e % 2 < kRows) partial[warp][g + e / 2 * 8][2 * t + e % 2] = sums[e];
  __syncthreads();  // all warps' sums are in shared memory
  for (int i = threadIdx.x; i < kOutputs * in.rows; i += kThreads) {
    const int row = i / kOutputs, output = i % kOutputs;
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kWarps; ++from) sum += partial[from][output][row];
    out[int64_t{row} * outputs + first_output + output] =
        scales[row] * row_scales[first_output + output] * sum;
  }
}

// Layer l. `early`: the kernel may begin before the previous one has ended.
template <int kRows, class Input, bool kWeightsFirst>
void launch_of_rows(const Layers& p, int64_t l, const Input& in, bool early, StreamRef stream) {
  const auto outputs = static_cast<int>(p.w.extent(1));
  auto* const kernel = matvec_kernel<kRows, Input, kWeightsFirst>;
  const int bytes    = weight_bytes(in.inputs) + kRows * row_bytes(in.inputs);
  FATHOM_EXPECT(bytes <= kMaxSharedBytes, "16 rows of weights and the rows of x fit in shared memory");
  allow_shared_memory_once<matvec_kernel<kRows, Input, kWeightsFirst>>(kMaxSharedBytes);
  const dim3 grid(static_cast<unsigned>(outputs / kOutputs));
  if (early) {
    launch_with_pdl(kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), stream, in, &p.w(l, 0, 0),
                    &p.row_scales(l, 0), &p.out(l, 0, 0), outputs);
  } else {
    kernel<<<grid, kThreads, bytes, stream>>>(in, &p.w(l, 0, 0), &p.row_scales(l, 0), &p.out(l, 0, 0),
                                              outputs);
    FATHOM_LAUNCHED();
  }
}

template <bool kWeightsFirst, class Input>
void launch_matvec(const Layers& p, int64_t l, const Input& in, StreamRef stream, bool early = false) {
  if (in.rows == 1)
    launch_of_rows<1, Input, kWeightsFirst>(p, l, in, early, stream);
  else if (in.rows <= 2)
    launch_of_rows<2, Input, kWeightsFirst>(p, l, in, early, stream);
  else if (in.rows <= 4)
    launch_of_rows<4, Input, kWeightsFirst>(p, l, in, early, stream);
  else
    launch_of_rows<8, Input, kWeightsFirst>(p, l, in, early, stream);
}

inline NormInput norm_input(const Layers& p, int64_t l) {
  return {&p.x(l, 0, 0), &p.gamma(l, 0), static_cast<int>(p.x.extent(1)), static_cast<int>(p.x.extent(2))};
}
inline Quantized quantized(const Layers& p) {
  return {p.codes.data(), p.scales.data(), static_cast<int>(p.codes.extent(0)),
          static_cast<int>(p.codes.extent(1))};
}

}  // namespace fathom::lab::norm_quantize_matvec
