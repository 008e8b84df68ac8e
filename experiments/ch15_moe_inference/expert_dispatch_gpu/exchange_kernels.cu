#include <algorithm>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "exchange_kernels.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

constexpr int kThreads     = 256;
constexpr int64_t kVectors = kWidth / 8;  // of a row, eight numbers each

unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

__global__ void number_from_rank_kernel(const int32_t* experts, const float* weights, int first, int slots,
                                        int32_t* to_experts, float* to_weights) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= slots) return;
  const int e    = experts[i] - first;
  const bool own = e >= 0 && e < static_cast<int>(kExpertsOfRank);
  to_experts[i]  = own ? e : -1;
  to_weights[i]  = own ? weights[i] : 0;
}

__global__ void sum_parts_kernel(const float4* parts, const int32_t* experts, int64_t rows, uint4* sums) {
  ptx::griddepcontrol_wait();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, row = i / kVectors, v = i % kVectors;
  if (row >= rows) return;
  float4 a = {}, b = {};
#pragma unroll
  for (int k = 0; k < kTopK; ++k) {
    const int64_t part = row * kTopK + k;
    if (__ldcg(experts + part) < 0) continue;
    const float4* const from = parts + (part * kVectors + v) * 2;
    const float4 c = __ldcg(from), d = __ldcg(from + 1);
    a.x += c.x, a.y += c.y, a.z += c.z, a.w += c.w;
    b.x += d.x, b.y += d.y, b.z += d.z, b.w += d.w;
  }
  sums[i] = {pack_bf16x2(a.x, a.y), pack_bf16x2(a.z, a.w), pack_bf16x2(b.x, b.y), pack_bf16x2(b.z, b.w)};
}

__device__ void add_bf16x2(uint32_t pair, float& low, float& high) {
  low += __uint_as_float(pair << 16);
  high += __uint_as_float(pair & 0xFFFF0000u);
}

__global__ void add_sums_kernel(const uint4* sums, int64_t tokens, float4* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= tokens * kVectors) return;
  float4 a = {}, b = {};
#pragma unroll
  for (int q = 0; q < kRanks; ++q) {
    const uint4 sum = sums[q * tokens * kVectors + i];
    add_bf16x2(sum.x, a.x, a.y);
    add_bf16x2(sum.y, a.z, a.w);
    add_bf16x2(sum.z, b.x, b.y);
    add_bf16x2(sum.w, b.z, b.w);
  }
  const float4 c = out[2 * i], d = out[2 * i + 1];
  out[2 * i]     = {c.x + a.x, c.y + a.y, c.z + a.z, c.w + a.w};
  out[2 * i + 1] = {d.x + b.x, d.y + b.y, d.z + b.z, d.w + b.w};
}

__global__ void count_kernel(int32_t* to) { ++*to; }

}  // namespace

void number_from_rank(View<const int32_t, 2> experts, View<const float, 2> weights, int rank,
                      const kernels::DispatchedRows& to, StreamRef stream) {
  const unsigned blocks = blocks_for(std::max<int64_t>(experts.size(), 1));  // CUDA rejects an empty grid
  number_from_rank_kernel<<<blocks, kThreads, 0, stream>>>(
      experts.data(), weights.data(), rank * static_cast<int>(kExpertsOfRank),
      static_cast<int>(experts.size()), to.experts.data(), to.weights.data());
  FATHOM_CUDA(cudaGetLastError());
}

void sum_parts(View<const float, 3> parts, View<const int32_t, 2> experts, View<bf16, 2> sums,
               StreamRef stream) {
  if (sums.size() == 0) return;
  launch_with_pdl(sum_parts_kernel, blocks_for(sums.size() / 8), kThreads, 0, stream,
                  reinterpret_cast<const float4*>(parts.data()), experts.data(), sums.extent(0),
                  reinterpret_cast<uint4*>(sums.data()));
}

void add_sums(View<const bf16, 2> sums, View<float, 2> out, StreamRef stream) {
  if (out.size() == 0) return;
  add_sums_kernel<<<blocks_for(out.size() / 8), kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(sums.data()), out.extent(0), reinterpret_cast<float4*>(out.data()));
  FATHOM_CUDA(cudaGetLastError());
}

void count(View<int32_t, 1> to, StreamRef stream) {
  count_kernel<<<1, 1, 0, stream>>>(to.data());
  FATHOM_CUDA(cudaGetLastError());
}

}  // namespace fathom::lab::expert_dispatch_gpu
