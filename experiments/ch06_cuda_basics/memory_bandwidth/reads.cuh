// The reads of one thread. How a vector is loaded is the variant's.
#pragma once

#include "cuda/check.h"
#include "reads.h"

namespace fathom::lab::memory_bandwidth {

// `load(v)` returns the first word of vector v of the table. As many are in flight as 32 registers
// hold, five or so, of 64 warps.
template <Pattern kPattern, class Load>
__global__ void __launch_bounds__(kThreads, 8)
    read_kernel(const uint4* table, uint32_t vectors, uint32_t* out, Load load) {
  uint32_t sum = 0;
#pragma unroll 16
  for (uint32_t step = 0; step < kSteps; ++step)
    sum += load(table + vector_of<kPattern>(position(blockIdx.x, step, threadIdx.x), vectors));
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

template <class Load>
void launch(const Reads& p, Load load, StreamRef stream) {
  if (p.out.size() == 0) return;
  const auto run = [&](auto* kernel) {
    kernel<<<static_cast<unsigned>(p.out.size() / kThreads), kThreads, 0, stream>>>(
        reinterpret_cast<const uint4*>(p.table.data()), static_cast<uint32_t>(p.table.bytes() / kVector),
        p.out.data(), load);
    FATHOM_LAUNCHED();
  };
  switch (p.pattern) {
    case Pattern::sequential:
      return run(read_kernel<Pattern::sequential, Load>);
    case Pattern::strided:
      return run(read_kernel<Pattern::strided, Load>);
    case Pattern::random_lines:
      return run(read_kernel<Pattern::random_lines, Load>);
    case Pattern::random_vectors:
      return run(read_kernel<Pattern::random_vectors, Load>);
  }
}

}  // namespace fathom::lab::memory_bandwidth
