// RMSNorm with a row in the registers of its threads: up to 32768 elements, in whole vectors of 8. Other rows
// are walked over twice.
#pragma once

#include "cuda/check.h"
#include "cuda/stream.h"
#include "experiments/rows.cuh"
#include "two_walks.cuh"

namespace fathom::lab::fused_rmsnorm_gpu {

// Resident threads of a multiprocessor: 48 registers each, 80 KiB of x in flight.
inline constexpr int kResident = 1280;

// kThreads threads hold a row, kVectors * 8 elements each; a block has kRows rows.
template <int kThreads, int kVectors, int kRows, int kBlock = (kThreads * kRows)>
__global__ void __launch_bounds__(kBlock, kResident / kBlock)
    rmsnorm_kernel(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<bf16, 2> y) {
  using rows::Elements, rows::eights, rows::kEight, rows::load_once, rows::pack, rows::unpack;
  static_assert(kRows == 1 || kThreads == 32, "rows of one block share no barrier");
  __shared__ rows::Partial<kThreads> partial;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (kRows > 1 && row >= x.extent(0)) return;
  // Vectors of the row from this thread's first one on.
  const int vectors = static_cast<int>(x.extent(1)) / kEight - static_cast<int>(threadIdx.x);
  const uint4* from = eights(x.data() + row * x.stride(0)) + threadIdx.x;
  const uint4* w    = eights(weight.data()) + threadIdx.x;
  uint4* to         = eights(y.data() + row * y.stride(0)) + threadIdx.x;
  const float dim   = static_cast<float>(static_cast<int>(x.extent(1)));

  uint4 v[kVectors], of_weight[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k) v[k] = k * kThreads < vectors ? load_once(from + k * kThreads) : uint4{};

#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    of_weight[k] = k * kThreads < vectors ? __ldg(w + k * kThreads) : uint4{};

  float squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const Elements<kEight> e = unpack(v[k]);
    float of_vector          = e.at[0] * e.at[0];
    for (int i = 1; i < kEight; ++i) of_vector += e.at[i] * e.at[i];
    squares += of_vector;
  }
  const float scale = rsqrtf(__fdividef(rows::over_row(squares, rows::Plus{}, partial), dim) + epsilon);

#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    Elements<kEight> e        = rows::unpack_again(v[k]);
    const Elements<kEight> by = unpack(of_weight[k]);
    for (int i = 0; i < kEight; ++i) e.at[i] *= scale * by.at[i];
    if (k * kThreads < vectors) to[k * kThreads] = pack(e);
  }
}

template <int kThreads, int kVectors, int kRows = 1>
void launch_rmsnorm(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<bf16, 2> y,
                    StreamRef stream) {
  rmsnorm_kernel<kThreads, kVectors, kRows>
      <<<blocks_for(x.extent(0), kRows), dim3(kThreads, kRows), 0, stream>>>(x, weight, epsilon, y);
  FATHOM_LAUNCHED();
}

inline void rmsnorm(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<bf16, 2> y,
                    StreamRef stream) {
  const int64_t dim = x.extent(1);
  if (x.size() == 0) return;
  FATHOM_EXPECT(x.extent(0) < (int64_t{1} << 31), "a block for each row, counted in 31 bits");
  if (dim > 32768 || !rows::in_eights(x) || !rows::in_eights(weight) || !rows::in_eights(y))
    return rmsnorm_in_two_walks(x, weight, epsilon, y, stream);
  if (dim <= 1024) return launch_rmsnorm<32, 4, 8>(x, weight, epsilon, y, stream);
  if (dim <= 4096) return launch_rmsnorm<128, 4>(x, weight, epsilon, y, stream);
  if (dim <= 8192) return launch_rmsnorm<256, 4>(x, weight, epsilon, y, stream);
  if (dim <= 16384) return launch_rmsnorm<512, 4>(x, weight, epsilon, y, stream);
  launch_rmsnorm<1024, 4>(x, weight, epsilon, y, stream);
}

}  // namespace fathom::lab::fused_rmsnorm_gpu
