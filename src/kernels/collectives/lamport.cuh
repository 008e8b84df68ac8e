// A protocol in which a number is its own flag: memory that waits for a number is zero, and a number is sent
// as -0 where it is +0. So it takes one trip over the link, with no fence and no byte beside it. Whoever has
// read a number writes the zero again. (TensorRT-LLM's and FlashInfer's Lamport all-reduce marks with -0 what
// is not there yet, and clears a third buffer one call later.)
//
// What its users see to: between a call that reads a place and one that sends there again lies another call,
// in which the sender waits for the reader, and the reader takes part in that one only when it has done with
// the first (griddepcontrol.wait). So nobody clears a number of a later call.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/system_scope.cuh"
#include "cuda/watchdog.cuh"
#include "kernels/collectives/ranks.h"

namespace fathom::kernels {

// Sends 16 bytes, of fp32 or of pairs of bf16, into another GPU's memory.
__device__ inline void lamport_send(void* to, uint4 v) {
  constexpr uint32_t kMinusZero = 0x80000000u;  // of a pair, the second one
  const auto not_zero           = [](uint32_t bits) { return bits == 0 ? kMinusZero : bits; };
  ptx::st_volatile_v4(to, {not_zero(v.x), not_zero(v.y), not_zero(v.z), not_zero(v.w)});
}

// Waits for them in this GPU's memory.
__device__ inline uint4 lamport_receive(void* at) {
  Watchdog watchdog(kCollectiveTimeout);
  for (;;) {
    const uint4 v = ptx::ld_volatile_v4(at);
    if (v.x != 0 && v.y != 0 && v.z != 0 && v.w != 0) {
      *static_cast<uint4*>(at) = {};  // for a later call
      return v;
    }
    watchdog.check();
  }
}

}  // namespace fathom::kernels
