#include "cuda/check.h"
#include "cuda/grid.cuh"
#include "step_graph.h"

namespace fathom::lab::all_reduce_gpu {
namespace {

constexpr int kThreads = 256;

__global__ void add_kernel(const float4* from, float4* to, int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const float4 a = to[i], b = from[i];
  to[i] = {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

__global__ void count_kernel(int32_t* to) { ++*to; }

}  // namespace

void add(View<const float, 2> from, View<float, 2> to, StreamRef stream) {
  const int64_t vectors = to.size() / 4;
  if (vectors == 0) return;
  add_kernel<<<static_cast<unsigned>((vectors + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<const float4*>(from.data()), reinterpret_cast<float4*>(to.data()), vectors);
  FATHOM_CUDA(cudaGetLastError());
}

void count(View<int32_t, 1> to, StreamRef stream) {
  count_kernel<<<1, 1, 0, stream>>>(to.data());
  FATHOM_CUDA(cudaGetLastError());
}

}  // namespace fathom::lab::all_reduce_gpu
