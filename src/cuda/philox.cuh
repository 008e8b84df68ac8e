// Philox4x32-10 on the GPU (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), the
// function of core/rng.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom {

// Four random words of a counter and a seed; different `use`s of a seed give independent words.
__device__ inline uint4 philox(uint64_t counter, uint32_t use, uint64_t seed) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = use, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

}  // namespace fathom
