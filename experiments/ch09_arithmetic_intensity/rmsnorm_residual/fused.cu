// sum = x + residual; y = sum * weight / rms(sum)       T x D, bf16, computed in fp32
//
// bytes   8 T D    and 8 T D move
// flops   5 T D
// limit   DRAM bandwidth. H200: 8192 x 8192 moves 537 MB, 135 us at the 3.98 TB/s of a copy
// idea    a thread adds up its share of the row, 8 loads of 16 bytes in flight, rounds it once and keeps it:
//         the written sum is squared and scaled in registers, without a reload
#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "residual.h"

namespace fathom::lab::rmsnorm_residual {
namespace {

using namespace rows;

// Resident threads of a multiprocessor: at most 64 registers each.
constexpr int kResident = 1024;

__device__ uint4 add(uint4 a, uint4 b) {
  Elements<kEight> sum     = unpack(a);
  const Elements<kEight> e = unpack(b);
  for (int i = 0; i < kEight; ++i) sum.at[i] += e.at[i];
  return pack(sum);
}

// kThreads threads hold a row, kVectors * 8 elements each; a block has kRows rows.
template <int kThreads, int kVectors, int kRows, int kBlock = (kThreads * kRows)>
__global__ void __launch_bounds__(kBlock, kResident / kBlock)
    in_registers_kernel(View<const bf16, 2> x, View<const bf16, 2> residual, View<const bf16, 1> weight,
                        float epsilon, View<bf16, 2> sum, View<bf16, 2> y) {
  static_assert(kRows == 1 || kThreads == 32, "rows of one block share no barrier");
  __shared__ Partial<kThreads> partial;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (kRows > 1 && row >= x.extent(0)) return;
  // Vectors of the row from this thread's first one on.
  const int vectors = static_cast<int>(x.extent(1)) / kEight - static_cast<int>(threadIdx.x);
  const uint4* a    = eights(x.data() + row * x.stride(0)) + threadIdx.x;
  const uint4* b    = eights(residual.data() + row * residual.stride(0)) + threadIdx.x;
  const uint4* w    = eights(weight.data()) + threadIdx.x;
  uint4* to_sum     = eights(sum.data() + row * sum.stride(0)) + threadIdx.x;
  uint4* to         = eights(y.data() + row * y.stride(0)) + threadIdx.x;
  const float dim   = static_cast<float>(static_cast<int>(x.extent(1)));

  uint4 v[kVectors], of_residual[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    v[k]           = k * kThreads < vectors ? load_once(a + k * kThreads) : uint4{};
    of_residual[k] = k * kThreads < vectors ? load_once(b + k * kThreads) : uint4{};
  }
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    v[k] = add(v[k], of_residual[k]);
    if (k * kThreads < vectors) to_sum[k * kThreads] = v[k];
    const Elements<kEight> e = unpack(v[k]);
    float of_vector          = e.at[0] * e.at[0];
    for (int i = 1; i < kEight; ++i) of_vector += e.at[i] * e.at[i];
    squares += of_vector;
  }
  uint4 of_weight[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    of_weight[k] = k * kThreads < vectors ? __ldg(w + k * kThreads) : uint4{};
  const float scale = rsqrtf(__fdividef(over_row(squares, Plus{}, partial), dim) + epsilon);

#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    Elements<kEight> e        = unpack_again(v[k]);
    const Elements<kEight> by = unpack(of_weight[k]);
    for (int i = 0; i < kEight; ++i) e.at[i] *= scale * by.at[i];
    if (k * kThreads < vectors) to[k * kThreads] = pack(e);
  }
}

// Rows of any length and alignment: each thread reloads the sums that it wrote.
template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads)
    two_walks_kernel(View<const bf16, 2> x, View<const bf16, 2> residual, View<const bf16, 1> weight,
                     float epsilon, View<bf16, 2> sum, View<bf16, 2> y) {
  __shared__ Partial<kThreads> partial;
  const int dim = static_cast<int>(x.extent(1));
  const bf16* a = x.data() + blockIdx.x * x.stride(0);
  const bf16* b = residual.data() + blockIdx.x * residual.stride(0);
  bf16* kept    = sum.data() + blockIdx.x * sum.stride(0);
  bf16* to      = y.data() + blockIdx.x * y.stride(0);
  float squares = 0;
#pragma unroll 2
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v       = load<kWidth>(a + d);
    const Elements<kWidth> e = load<kWidth>(b + d);
    for (int i = 0; i < kWidth; ++i) {
      v.at[i] = rounded(v.at[i] + e.at[i]);
      squares += v.at[i] * v.at[i];
    }
    store<kWidth>(kept + d, v);
  }
  const float scale = rsqrtf(over_row(squares, Plus{}, partial) / static_cast<float>(dim) + epsilon);
#pragma unroll 2
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v       = load_written<kWidth>(kept + d);
    const Elements<kWidth> w = load<kWidth>(weight.data() + d);
    for (int i = 0; i < kWidth; ++i) v.at[i] *= scale * w.at[i];
    store<kWidth>(to + d, v);
  }
}

template <int kThreads, int kVectors, int kRows = 1>
void in_registers(const Residual& p, StreamRef stream) {
  in_registers_kernel<kThreads, kVectors, kRows>
      <<<blocks_for(p.x.extent(0), kRows), dim3(kThreads, kRows), 0, stream>>>(p.x, p.residual, p.weight,
                                                                               kEpsilon, p.sum, p.y);
  FATHOM_LAUNCHED();
}

template <int kWidth>
void in_two_walks(const Residual& p, StreamRef stream) {
  constexpr int kThreads = 256;
  two_walks_kernel<kThreads, kWidth><<<static_cast<unsigned>(p.x.extent(0)), kThreads, 0, stream>>>(
      p.x, p.residual, p.weight, kEpsilon, p.sum, p.y);
  FATHOM_LAUNCHED();
}

}  // namespace

void fused(const Residual& p, StreamRef stream) {
  const int64_t dim = p.x.extent(1);
  if (p.x.size() == 0) return;
  FATHOM_EXPECT(p.x.extent(0) < (int64_t{1} << 31) && dim < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  if (!in_eights(p.x) || !in_eights(p.residual) || !in_eights(p.weight) || !in_eights(p.sum) ||
      !in_eights(p.y))
    return in_two_walks<1>(p, stream);
  if (dim <= 1024) return in_registers<32, 4, 8>(p, stream);
  if (dim <= 4096) return in_registers<128, 4>(p, stream);
  if (dim <= 8192) return in_registers<256, 4>(p, stream);
  if (dim <= 16384) return in_registers<512, 4>(p, stream);
  if (dim <= 32768) return in_registers<1024, 4>(p, stream);
  in_two_walks<kEight>(p, stream);
}

}  // namespace fathom::lab::rmsnorm_residual
