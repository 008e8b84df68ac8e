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
// What only the target sm_90a has.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FATHOM_PTX_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_PTX_SM90A(...) __trap()
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
// caller. This one takes the barrier's shared_address().
__device__ inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done)
    FATHOM_PTX_SM90(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
}
__device__ inline void mbarrier_wait(const uint64_t* barrier, uint32_t parity) {
  mbarrier_wait(shared_address(barrier), parity);
}

// Arrives, without bytes.
__device__ inline void mbarrier_arrive(uint32_t barrier) {
  FATHOM_PTX_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void mbarrier_arrive(const uint64_t* barrier) { mbarrier_arrive(shared_address(barrier)); }

// Makes mbarrier_init visible to the copy engine, and to the other blocks of a cluster behind its barrier.
__device__ inline void fence_mbarrier_init() {
  FATHOM_PTX_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
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

// ---- clusters: blocks that reach each other's shared memory (sm_90) ----

// Threads of the cluster that have not left the kernel meet: what they did before arriving is visible to
// whoever has waited.
__device__ inline void cluster_arrive() {
  FATHOM_PTX_SM90("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same, but others see only what a fence before it says: barriers, by fence_mbarrier_init().
__device__ inline void cluster_arrive_relaxed() {
  FATHOM_PTX_SM90("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  FATHOM_PTX_SM90("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where the cluster's block `rank` has what lies at `shared_address` here.
__device__ inline uint32_t address_in_block(uint32_t shared_address, int rank) {
  uint32_t address = 0;
  FATHOM_PTX_SM90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}

// Loads 16 bytes of another block; the address by address_in_block.
__device__ inline float4 load_from_block(uint32_t from) {
  float4 v = {};
  FATHOM_PTX_SM90("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                  : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                  : "r"(from)
                  : "memory");
  return v;
}

// Stores 16 bytes in another block, and counts them on a barrier there; both addresses by address_in_block.
__device__ inline void store_to_block(uint32_t to, float4 v, uint32_t barrier) {
  FATHOM_PTX_SM90(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
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

// ---- programmatic dependent launch: a kernel begins while the one before it ends (sm_90) ----

// Waits until the kernels before this one in its stream are complete and what they wrote can be read. Every
// kernel of a chain (core/launch.cuh) calls it, whether it needs their results or not: a later one relies on
// it. Before it, a thread may read only what no kernel of the chain writes, and write nothing.
__device__ inline void wait_for_previous() { FATHOM_PTX_SM90("griddepcontrol.wait;" ::: "memory"); }

// The next kernel of the chain may be put on multiprocessors with room for it, once every block has said so
// or ended.
__device__ inline void let_next_begin() { FATHOM_PTX_SM90("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- shared memory by shared_address() ----

__device__ inline uint4 load_shared_16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ inline uint32_t load_shared_4(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
__device__ inline void store_shared_4(uint32_t to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}

// ---- some warps of a block meet ----

// Barrier `id` (1 to 15; 0 is that of __syncthreads) of `threads` threads, whole warps.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- setmaxnreg: a warpgroup gives registers up, or takes them (sm_90a) ----

// By all warps of a warpgroup; multiples of 8 from 24 to 256. The kernel needs __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ inline void give_registers() {
  FATHOM_PTX_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  FATHOM_PTX_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- mma.sync, and fragments from shared memory (sm_80) ----

// d += a b for a 16 x 16 and b 16 x 8 in bf16. With g = lane / 4 and t = lane % 4, a lane has
//   a  rows g, g + 8, g, g + 8 at columns 2 t, 2 t + 1 (a[0], a[1]) and 2 t + 8, 2 t + 9 (a[2], a[3])
//   b  rows 2 t, 2 t + 1 (b[0]) and 2 t + 8, 2 t + 9 (b[1]) of column g
//   d  row g (d[0], d[1]) and row g + 8 (d[2], d[3]) at columns 2 t, 2 t + 1
// the lower index in the lower half of a register.
__device__ inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit numbers; lane l gives the address (a multiple of 16) of row l % 8 of matrix
// l / 8, and gets of each matrix row g at columns 2 t, 2 t + 1.
__device__ inline void load_matrices(uint32_t (&m)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address)
               : "memory");
}
// The same of the transposed matrices: column g at rows 2 t, 2 t + 1.
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address)
               : "memory");
}

// An 8 x 8 matrix of 16-bit numbers, of which a lane has row g at columns 2 t, 2 t + 1; returns those of its
// transpose.
__device__ inline uint32_t transpose_matrix(uint32_t m) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(m));
  return transposed;
}

// ---- loads of what is read once ----

// 16 bytes that no kernel of the chain writes; not kept in L1, and the first to leave L2.
__device__ inline uint4 load_once(const void* global) {
  uint4 v;
  // What createpolicy.fractional.L2::evict_first gives on sm_90 (CUTLASS has the same number, CacheHintSm90):
  // a constant lies in uniform registers, the instruction's result would be moved there for each load. (The
  // qualifier .L2::evict_first itself is only for 32 bytes, on later GPUs.)
  constexpr uint64_t kFirstToLeave = 0x12f0000000000000;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global), "l"(kFirstToLeave));
  return v;
}

// 2^x, within 2 ulp.
__device__ inline float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- conversions (sm_89) ----

// Two numbers as E4M3 codes, the first in the low byte. Rounds to nearest, ties to even; what is too large
// becomes the largest number, 448.
__device__ inline uint32_t to_e4m3(float first, float second) {
  uint16_t codes = 0;
  FATHOM_PTX_SM90("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
}

// ---- registers ----

// No instruction. The compiler keeps `x` in registers from here on, as it can't know what it is. Otherwise it
// may make an address anew at every use, in some instructions each time.
template <class T>
__device__ inline T kept(T x) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+r"(x));
  return x;
}

// No instruction. The numbers are others from here on, whatever they are: what they were is not kept so far.
template <int kCount>
__device__ inline void forget(float (&numbers)[kCount]) {
#pragma unroll
  for (float& x : numbers) asm volatile("" : "=f"(x));
}

#undef FATHOM_PTX_SM90
#undef FATHOM_PTX_SM90A

}  // namespace fathom::ptx
