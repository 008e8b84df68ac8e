// One level of the search. Variants differ in who launches the next one, and with how many blocks.
#pragma once

#include "cuda/check.h"
#include "search.h"

namespace fathom::lab::dynamic_parallelism {

inline constexpr int kThreads = 256;

// A thread for each edge of a level.
FATHOM_HD constexpr unsigned blocks_of(uint32_t vertices) {
  return (vertices * kDegree + kThreads - 1) / kThreads;
}

static __global__ void __launch_bounds__(kThreads) begin_kernel(Search p) {
  const int64_t first = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  for (int64_t v = first; v < p.vertices(); v += int64_t{gridDim.x} * kThreads)
    p.level(v) = v == 0 ? 0 : kUnreached;
  if (first > kMaxLevels) return;
  p.size(first) = first == 0 ? 1 : 0;
  if (first < kMaxLevels) p.finished(first) = 0;
  if (first == 0) p.frontier(0, 0) = 0;
}

// By all threads of a grid: the neighbours of the `size` vertices of a level that no level has yet are the
// next one. Warps stay together, and add up what they found before they take places in the next frontier.
__device__ inline void expand(const Search& p, int level, uint32_t size) {
  const uint32_t edges = size * kDegree, lane = threadIdx.x % 32;
  for (uint32_t first = blockIdx.x * kThreads + threadIdx.x - lane; first < edges;
       first += gridDim.x * kThreads) {
    const uint32_t edge = first + lane;
    uint32_t to         = 0;
    bool is_new         = false;
    if (edge < edges) {
      to     = p.neighbours(p.frontier(level % 2, edge / kDegree), edge % kDegree);
      is_new = p.level(to) == kUnreached && atomicCAS(&p.level(to), kUnreached, level + 1u) == kUnreached;
    }
    const uint32_t found = __ballot_sync(~0u, is_new);
    if (found == 0) continue;
    uint32_t place = 0;
    if (lane == 0) place = atomicAdd(&p.size(level + 1), static_cast<uint32_t>(__popc(found)));
    place = __shfl_sync(~0u, place, 0) + __popc(found & ((1u << lane) - 1));
    if (is_new) p.frontier((level + 1) % 2, place) = to;
  }
}

static __global__ void __launch_bounds__(kThreads) expand_kernel(Search p, int level) {
  expand(p, level, p.size(level));
}

inline void launch_begin(const Search& p, StreamRef stream) {
  begin_kernel<<<blocks_for(p.vertices() + kMaxLevels, kThreads), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}
inline void launch_level(const Search& p, int level, unsigned blocks, StreamRef stream) {
  expand_kernel<<<blocks, kThreads, 0, stream>>>(p, level);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::dynamic_parallelism
