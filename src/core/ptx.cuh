// Instructions that CUDA C++ has no words for, or has them behind headers that cost seconds to compile. Each
// function is one instruction of the PTX ISA (section 9.7), named after it; what is not used is not here.
//
// Two proxies reach shared memory: ordinary loads and stores go through the generic one, the copy engine
// (TMA) through the async one. What one wrote, the other sees only after a fence (fence_proxy_async) or after
// waiting for the mbarrier on which a copy completes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::ptx {

// The copy engine and transaction barriers begin with sm_90. An older GPU never gets here: its variants are
// typed skips (needs_feature), but a build for several architectures compiles them for each.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define FATHOM_PTX_SM90(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_PTX_SM90(...) __trap()
#endif

// The address within the shared window that instructions take, of an object in shared memory.
__device__ inline uint32_t shared_address(const void* object) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(object));
}

// ---- cp.async: each thread copies 16 bytes to shared memory (sm_80) ----

// Both addresses are multiples of 16. Past the L1 cache. The thread that issued it sees the data after
// cp_async_wait, others after a barrier behind that.
__device__ inline void cp_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}

// The same, but only the first `bytes` (0 to 16) are read, and the rest becomes zero.
__device__ inline void cp_async_16(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}

// Closes a group of this thread's copies, be it empty.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's latest groups are still under way.
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- mbarrier: a phase ends when its arrivals and its bytes have come (sm_90) ----

// Phase 0 begins. By one thread; the others may use the barrier after __syncthreads(), the copy engine after
// a fence_proxy_async().
__device__ inline void mbarrier_init(uint64_t* barrier, int arrivals) {
  FATHOM_PTX_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                  : "memory");
}

// Arrives, and adds `bytes` to what the running phase waits for. Before the copies that bring them are
// issued.
__device__ inline void mbarrier_arrive_expect_tx(uint64_t* barrier, int bytes) {
  FATHOM_PTX_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                  "r"(bytes)
                  : "memory");
}

// Waits for the end of the phase of this parity (0, 1, 0, ...). What was copied is then visible to the
// caller.
__device__ inline void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    FATHOM_PTX_SM90(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

// Orders what this thread did to shared memory by the generic proxy before what the async proxy does next.
__device__ inline void fence_proxy_async() { FATHOM_PTX_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- cp.async.bulk: one thread starts a copy of any length (sm_90) ----

// `bytes` and both addresses are multiples of 16. Completes on the barrier, which must expect the bytes.
__device__ inline void bulk_load(void* shared, const void* global, int bytes, uint64_t* barrier) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// The other way. Completes with the group of this thread that bulk_commit closes.
__device__ inline void bulk_store(void* global, const void* shared, int bytes) {
  FATHOM_PTX_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                  "r"(shared_address(shared)), "r"(bytes)
                  : "memory");
}

__device__ inline void bulk_commit() { FATHOM_PTX_SM90("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but this thread's latest kPending groups have read their shared memory, which may then be
// overwritten, or given up by leaving the kernel. (The writes to global memory are complete when the kernel
// is.)
template <int kPending>
__device__ inline void bulk_wait_read() {
  FATHOM_PTX_SM90("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// ---- cp.async.bulk.tensor: boxes of a matrix that a tensor map describes (core/tensor_map.h; sm_90) ----

// `map` is a CUtensorMap, a __grid_constant__ parameter of the kernel; these take its address.

// Fetches the map itself, so that the first copy does not wait for it.
__device__ inline void prefetch_tensor_map(const void* map) {
  FATHOM_PTX_SM90("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads the box whose first element is (row, column); elements outside the matrix are zero. The barrier must
// expect the bytes of the whole box. `shared` is aligned to 128 bytes.
__device__ inline void tensor_load(void* shared, const void* map, int row, int column, uint64_t* barrier) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// The other way; elements outside the matrix are not written. Completes as bulk_store does.
__device__ inline void tensor_store(const void* map, int row, int column, const void* shared) {
  FATHOM_PTX_SM90("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                  "r"(column), "r"(row), "r"(shared_address(shared))
                  : "memory");
}

#undef FATHOM_PTX_SM90

}  // namespace fathom::ptx
