// Loads, stores and fences that order memory between the GPUs of a host (PTX ISA, "Memory Consistency
// Model"): one GPU writes into another's memory, and the other waits for it in a kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::ptx {

// All accesses that this thread made or observed before come, for every GPU, before those after it.
__device__ inline void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ inline void st_release_sys(uint32_t* to, uint32_t x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
__device__ inline uint32_t ld_acquire_sys(const uint32_t* from) {
  uint32_t x = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

// 16 bytes that bypass L1. Each half of 8 bytes is written and read as a whole.
__device__ inline void st_volatile_v4(void* to, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
__device__ inline uint4 ld_volatile_v4(const void* from) {
  uint4 v = {};
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Nanoseconds of a clock that all multiprocessors share. Its ticks may be a microsecond apart.
__device__ inline uint64_t globaltimer() {
  uint64_t t = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

}  // namespace fathom::ptx
