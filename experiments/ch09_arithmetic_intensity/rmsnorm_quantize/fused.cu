// y = x * weight / rms(x); scale = max|y| / 448; q = y / scale      T x D, bf16 to e4m3, computed in fp32
//
// bytes   3 T D    and 3 T D move
// flops   6 T D
// limit   DRAM bandwidth. H200: 32768 x 8192 moves 805 MB, 202 us at the 3.98 TB/s of a copy
// idea    1 / rms(x) is one positive number for the row, so max|y| = max|x weight| / rms(x): both reductions
//         need only x and weight, and share one walk and one barrier. y is never rounded to bf16
#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "quantize.h"

namespace fathom::lab::rmsnorm_quantize {
namespace {

using namespace rows;

// Resident threads of a multiprocessor: at most 64 registers each.
constexpr int kResident = 1024;

// A row's factors, from its sum of squares and its largest |x weight|: q = x weight `by`.
struct Scales {
  float scale, by;
};
__device__ Scales scales_of(float squares, float largest, int dim, float epsilon) {
  const float root  = rsqrtf(__fdividef(squares, static_cast<float>(dim)) + epsilon);
  const float scale = fmaxf(root * largest * (1 / kLargest), kSmallestScale);
  return {scale, __fdividef(root, scale)};
}

// kThreads threads hold a row, kVectors * 8 elements each; a block has kRows rows.
template <int kThreads, int kVectors, int kRows, int kBlock = (kThreads * kRows)>
__global__ void __launch_bounds__(kBlock, kResident / kBlock)
    in_registers_kernel(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<fp8_e4m3, 2> q,
                        View<float, 1> scale) {
  static_assert(kRows == 1 || kThreads == 32, "rows of one block share no barrier");
  __shared__ Partial<kThreads> of_squares, of_largest;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (kRows > 1 && row >= x.extent(0)) return;
  // Vectors of the row from this thread's first one on.
  const int vectors = static_cast<int>(x.extent(1)) / kEight - static_cast<int>(threadIdx.x);
  const uint4* from = eights(x.data() + row * x.stride(0)) + threadIdx.x;
  const uint4* w    = eights(weight.data()) + threadIdx.x;
  fp8_e4m3* to      = q.data() + row * q.stride(0) + threadIdx.x * kEight;

  uint4 v[kVectors], of_weight[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) v[k] = k * kThreads < vectors ? load_once(from + k * kThreads) : uint4{};
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    of_weight[k] = k * kThreads < vectors ? __ldg(w + k * kThreads) : uint4{};

  float squares = 0, largest = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const Elements<kEight> e = unpack(v[k]), by = unpack(of_weight[k]);
    float of_vector = e.at[0] * e.at[0];
    for (int i = 1; i < kEight; ++i) of_vector += e.at[i] * e.at[i];
    squares += of_vector;
    for (int i = 0; i < kEight; ++i) largest = fmaxf(largest, fabsf(e.at[i] * by.at[i]));
  }
  squares = over_warp(squares, Plus{});
  largest = over_warp(largest, Larger{});
  if constexpr (kThreads > 32) {
    put(squares, of_squares);
    put(largest, of_largest);
    __syncthreads();  // all warps have written both before any reads
    squares = total(of_squares, Plus{});
    largest = total(of_largest, Larger{});
  }
  const Scales s = scales_of(squares, largest, static_cast<int>(x.extent(1)), epsilon);
  if (threadIdx.x == 0) scale(row) = s.scale;

#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    Elements<kEight> e        = unpack_again(v[k]);
    const Elements<kEight> by = unpack_again(of_weight[k]);
    for (int i = 0; i < kEight; ++i) e.at[i] *= s.by * by.at[i];
    if (k * kThreads < vectors) store(to + k * kThreads * kEight, e);
  }
}

// Rows of any length and alignment: walked over for the scales, and again to be scaled.
template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads)
    two_walks_kernel(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<fp8_e4m3, 2> q,
                     View<float, 1> scale) {
  __shared__ Partial<kThreads> of_squares, of_largest;
  const int dim    = static_cast<int>(x.extent(1));
  const bf16* from = x.data() + blockIdx.x * x.stride(0);
  fp8_e4m3* to     = q.data() + blockIdx.x * q.stride(0);
  float squares = 0, largest = 0;
#pragma unroll 2
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    const Elements<kWidth> v = load<kWidth>(from + d), w = load<kWidth>(weight.data() + d);
    for (int i = 0; i < kWidth; ++i) {
      squares += v.at[i] * v.at[i];
      largest = fmaxf(largest, fabsf(v.at[i] * w.at[i]));
    }
  }
  put(over_warp(squares, Plus{}), of_squares);
  put(over_warp(largest, Larger{}), of_largest);
  __syncthreads();  // all warps have written both before any reads
  const Scales s = scales_of(total(of_squares, Plus{}), total(of_largest, Larger{}), dim, epsilon);
  if (threadIdx.x == 0) scale(blockIdx.x) = s.scale;
#pragma unroll 2
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v       = load<kWidth>(from + d);
    const Elements<kWidth> w = load<kWidth>(weight.data() + d);
    for (int i = 0; i < kWidth; ++i) v.at[i] *= s.by * w.at[i];
    store<kWidth>(to + d, v);
  }
}

template <int kThreads, int kVectors, int kRows = 1>
void in_registers(const Quantize& p, StreamRef stream) {
  in_registers_kernel<kThreads, kVectors, kRows>
      <<<blocks_for(p.x.extent(0), kRows), dim3(kThreads, kRows), 0, stream>>>(p.x, p.weight, kEpsilon, p.q,
                                                                               p.scale);
  FATHOM_LAUNCHED();
}

template <int kWidth>
void in_two_walks(const Quantize& p, StreamRef stream) {
  constexpr int kThreads = 256;
  two_walks_kernel<kThreads, kWidth>
      <<<static_cast<unsigned>(p.x.extent(0)), kThreads, 0, stream>>>(p.x, p.weight, kEpsilon, p.q, p.scale);
  FATHOM_LAUNCHED();
}

}  // namespace

void fused(const Quantize& p, StreamRef stream) {
  const int64_t dim = p.x.extent(1);
  if (p.x.size() == 0) return;
  FATHOM_EXPECT(p.x.extent(0) < (int64_t{1} << 31) && dim < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  if (!in_eights(p.x) || !in_eights(p.weight) || !in_eights(p.q)) return in_two_walks<1>(p, stream);
  if (dim <= 1024) return in_registers<32, 4, 8>(p, stream);
  if (dim <= 4096) return in_registers<128, 4>(p, stream);
  if (dim <= 8192) return in_registers<256, 4>(p, stream);
  if (dim <= 16384) return in_registers<512, 4>(p, stream);
  if (dim <= 32768) return in_registers<1024, 4>(p, stream);
  in_two_walks<kEight>(p, stream);
}

}  // namespace fathom::lab::rmsnorm_quantize
