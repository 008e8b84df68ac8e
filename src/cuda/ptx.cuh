// PTX instructions that CUDA C++ does not expose, or exposes in headers that take seconds to compile. Each
// function is one instruction of the PTX ISA (section 9.7) and has its name. Only instructions in use are
// here.
//
// Shared memory has two proxies: ordinary loads and stores use the generic proxy, TMA the async proxy. A
// write through one is visible to the other only after fence_proxy_async(), or after waiting for the mbarrier
// on which a copy completes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::ptx {

// TMA and transaction barriers need sm_90. An older GPU never runs this code: its variants are skipped
// (needs_feature), but a build for several architectures compiles them for each.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define FATHOM_PTX_SM90(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_PTX_SM90(...) __trap()
#endif
// For instructions of the target sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FATHOM_PTX_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_PTX_SM90A(...) __trap()
#endif

// The 32-bit shared-memory address of an object, as instructions take it.
__device__ inline uint32_t shared_address(const void* object) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(object));
}

// ---- cp.async: each thread copies 16 bytes to shared memory (sm_80) ----

// Both addresses are multiples of 16. Bypasses L1. The issuing thread sees the data after
// cp_async_wait_group, others after a barrier that follows it.
__device__ inline void cp_async_cg(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}

// The same, but reads only the first `bytes` (0 to 16) and fills the rest with zeros.
__device__ inline void cp_async_cg(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}

// Closes a group of this thread's copies, which may be empty.
__device__ inline void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Instead of a group: arrives on the barrier, on behalf of this thread, once all of its earlier copies are
// complete. The arrival is one of those that mbarrier_init counted. (sm_90 here, as all barriers.)
__device__ inline void cp_async_mbarrier_arrive_noinc(uint64_t* barrier) {
  FATHOM_PTX_SM90("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
                  : "memory");
}

// Waits until at most the latest kPending groups of this thread are incomplete.
template <int kPending>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- mbarrier: a phase completes after its arrivals and its expected bytes (sm_90) ----

// Starts phase 0. Called by one thread. Other threads may use the barrier after __syncthreads(), TMA after
// fence_proxy_async().
__device__ inline void mbarrier_init(uint64_t* barrier, int arrivals) {
  FATHOM_PTX_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                  : "memory");
}

// Arrives and adds `bytes` to the transaction count of the current phase. Call it before issuing the copies.
__device__ inline void mbarrier_arrive_expect_tx(uint64_t* barrier, int bytes) {
  FATHOM_PTX_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                  "r"(bytes)
                  : "memory");
}

// Waits for the phase of this parity (0, 1, 0, ...) to complete. The copied data are then visible to the
// caller. `barrier` is its shared_address().
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

// Arrives without bytes.
__device__ inline void mbarrier_arrive(uint32_t barrier) {
  FATHOM_PTX_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void mbarrier_arrive(const uint64_t* barrier) { mbarrier_arrive(shared_address(barrier)); }

// Arrives on a barrier of another CTA of the cluster; the address is from mapa_shared_cluster. It says that
// this thread has read what a copy may overwrite: what the thread wrote, the others do not see. (With
// .release.cluster they would, and each arrival would wait for all of the thread's accesses to memory,
// MEMBAR.GPU in SASS. CUTLASS: ClusterBarrier::arrive.)
__device__ inline void mbarrier_arrive_cluster(uint32_t barrier) {
  FATHOM_PTX_SM90("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Makes mbarrier_init visible to TMA, and to the other CTAs of the cluster after the cluster barrier.
__device__ inline void fence_mbarrier_init() {
  FATHOM_PTX_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's earlier generic accesses to shared memory before later accesses by the async proxy.
__device__ inline void fence_proxy_async() { FATHOM_PTX_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- cp.async.bulk: one thread starts a TMA copy of any length (sm_90) ----

// Global to shared. `bytes` and both addresses are multiples of 16. Completes on the barrier, which must
// expect the bytes.
__device__ inline void cp_async_bulk_load(void* shared, const void* global, int bytes, uint64_t* barrier) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Shared to global. Completes with the bulk group that this thread closes by cp_async_bulk_commit_group.
__device__ inline void cp_async_bulk_store(void* global, const void* shared, int bytes) {
  FATHOM_PTX_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                  "r"(shared_address(shared)), "r"(bytes)
                  : "memory");
}

__device__ inline void cp_async_bulk_commit_group() {
  FATHOM_PTX_SM90("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but this thread's latest kPending groups have read their shared memory. It may then be
// overwritten, and the CTA may exit. (The writes to global memory are complete when the kernel is.)
template <int kPending>
__device__ inline void cp_async_bulk_wait_group_read() {
  FATHOM_PTX_SM90("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// ---- thread block clusters: CTAs that access each other's shared memory (sm_90) ----

// Barrier of all threads of the cluster that have not exited. Writes before the arrival are visible after the
// wait.
__device__ inline void cluster_barrier_arrive() {
  FATHOM_PTX_SM90("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same without release semantics: after the wait, others see only writes that an earlier fence released,
// such as fence_mbarrier_init().
__device__ inline void cluster_barrier_arrive_relaxed() {
  FATHOM_PTX_SM90("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_barrier_wait() {
  FATHOM_PTX_SM90("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// This CTA's rank in its cluster.
__device__ inline int cluster_ctarank() {
  int rank = 0;
  FATHOM_PTX_SM90("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The address in CTA `rank` of the cluster that corresponds to this CTA's `shared_address`.
__device__ inline uint32_t mapa_shared_cluster(uint32_t shared_address, int rank) {
  uint32_t address = 0;
  FATHOM_PTX_SM90("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}

// One number in another CTA; the address is from mapa_shared_cluster.
__device__ inline float ld_shared_cluster(uint32_t from) {
  float v = 0;
  FATHOM_PTX_SM90("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
  return v;
}
__device__ inline void st_shared_cluster(uint32_t to, float v) {
  FATHOM_PTX_SM90("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

// Loads 16 bytes from another CTA; the address is from mapa_shared_cluster.
__device__ inline float4 ld_shared_cluster_v4(uint32_t from) {
  float4 v = {};
  FATHOM_PTX_SM90("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                  : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                  : "r"(from)
                  : "memory");
  return v;
}

// Stores 16 bytes in another CTA and counts them on an mbarrier there; both addresses are from
// mapa_shared_cluster.
__device__ inline void st_async_v4(uint32_t to, float4 v, uint32_t barrier) {
  FATHOM_PTX_SM90(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}

// ---- cp.async.bulk.tensor: TMA copies of boxes of a matrix, by a tensor map (cuda/tensor_map.h; sm_90) ----

// `map` is the address of a CUtensorMap, a __grid_constant__ parameter of the kernel.

// Prefetches the map itself, so the first copy does not wait for it.
__device__ inline void prefetch_tensormap(const void* map) {
  FATHOM_PTX_SM90("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads the box whose first element is (row, column). Elements outside the matrix become zero; the barrier
// must expect the bytes of the whole box. `shared` is aligned to 128 bytes.
// `column` is a whole number of 16-byte vectors, here and below: a Hopper GPU takes another one for an
// illegal instruction.
__device__ inline void cp_async_bulk_tensor_load(void* shared, const void* map, int row, int column,
                                                 uint64_t* barrier) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// The same box for several CTAs of the cluster: each CTA whose rank is a bit of `mask` receives it at the
// same offset of its shared memory, and its barrier at the same offset counts the bytes.
__device__ inline void cp_async_bulk_tensor_load_multicast(void* shared, const void* map, int row, int column,
                                                           uint64_t* barrier, uint16_t mask) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

// The same of a tensor with three axes.
__device__ inline void cp_async_bulk_tensor_load(void* shared, const void* map, int plane, int row,
                                                 int column, uint64_t* barrier) {
  FATHOM_PTX_SM90(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(plane), "r"(shared_address(barrier))
      : "memory");
}

// Stores a box. Elements outside the matrix are not written. Completes as cp_async_bulk_store does.
__device__ inline void cp_async_bulk_tensor_store(const void* map, int row, int column, const void* shared) {
  FATHOM_PTX_SM90("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                  "r"(column), "r"(row), "r"(shared_address(shared))
                  : "memory");
}

// ---- programmatic dependent launch: a kernel starts before the previous one ends (sm_90) ----

// Waits until the earlier kernels of the stream are complete and their writes visible. Every kernel launched
// by launch_with_pdl (cuda/launch.cuh) calls it, even one that needs no earlier result: later kernels rely on
// the order. Before the wait, a thread may read only memory that no kernel of the chain writes, and may not
// write.
__device__ inline void griddepcontrol_wait() { FATHOM_PTX_SM90("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel of the chain start on multiprocessors with room for it, once every CTA has called this
// or exited.
__device__ inline void griddepcontrol_launch_dependents() {
  FATHOM_PTX_SM90("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- global memory between CTAs (sm_70) ----

// Adds, and returns the number before. Earlier writes are visible to whoever sees the sum by ld_acquire.
__device__ inline uint32_t atom_add_release(uint32_t* global, uint32_t x) {
  uint32_t before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(global)), "r"(x)
               : "memory");
  return before;
}
__device__ inline uint32_t ld_acquire(const uint32_t* global) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(x)
               : "l"(__cvta_generic_to_global(global))
               : "memory");
  return x;
}

// ---- accesses to shared memory by shared_address() ----

__device__ inline uint4 ld_shared_v4(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ inline uint32_t ld_shared(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
__device__ inline void st_shared(uint32_t to, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}

// `to` is a multiple of 8.
__device__ inline void st_shared_v2(uint32_t to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

// ---- global memory ----

// Stores if `condition`, without a branch: nvcc would move the computation of x into a branch, and products
// in a row of branches do not overlap.
__device__ inline void st_global_if(bool condition, float* to, float x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.global.f32 [%0], %1;\n}" ::"l"(to), "f"(x),
               "r"(int{condition})
               : "memory");
}
__device__ inline void st_global_if(bool condition, void* to, uint16_t x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.global.b16 [%0], %1;\n}" ::"l"(to), "h"(x),
               "r"(int{condition})
               : "memory");
}

// ---- named barriers: some warps of a CTA ----

// Barrier `id` is 1 to 15 (__syncthreads uses 0); `threads` is a multiple of 32.
__device__ inline void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ inline void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- setmaxnreg: a warpgroup releases or requests registers (sm_90a) ----

// Executed by all warps of a warpgroup. kRegisters is a multiple of 8 from 24 to 256. The kernel needs
// __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ inline void setmaxnreg_dec() {
  FATHOM_PTX_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void setmaxnreg_inc() {
  FATHOM_PTX_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- mma.sync and its fragments (sm_80) ----

// d += a b, with a 16 x 16 and b 16 x 8 in bf16. With g = lane / 4 and t = lane % 4, a lane holds
//   a  rows g, g + 8, g, g + 8 at columns 2 t, 2 t + 1 (a[0], a[1]) and 2 t + 8, 2 t + 9 (a[2], a[3])
//   b  rows 2 t, 2 t + 1 (b[0]) and 2 t + 8, 2 t + 9 (b[1]) of column g
//   d  row g (d[0], d[1]) and row g + 8 (d[2], d[3]) at columns 2 t, 2 t + 1
// with the lower index in the lower half of a register.
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices of 16-bit elements. Lane l passes the address (a multiple of 16) of row l % 8 of
// matrix l / 8, and receives row g, columns 2 t and 2 t + 1, of each matrix.
__device__ inline void ldmatrix_x4(uint32_t (&m)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address)
               : "memory");
}
// The same of the transposed matrices: column g, rows 2 t and 2 t + 1.
__device__ inline void ldmatrix_x4_trans(uint32_t (&m)[4], uint32_t shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address)
               : "memory");
}

// Stores four 8 x 8 matrices: the inverse of ldmatrix_x4 (sm_90).
__device__ inline void stmatrix_x4(uint32_t shared_address, const uint32_t (&m)[4]) {
  FATHOM_PTX_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address),
                  "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                  : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements, of which a lane holds row g, columns 2 t and 2 t + 1.
__device__ inline uint32_t movmatrix_trans(uint32_t m) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(m));
  return transposed;
}

// ---- streaming loads ----

// Loads 16 bytes that are read once and that no kernel of the chain writes: not allocated in L1, evicted
// first from L2.
__device__ inline uint4 ld_global_nc_no_allocate(const void* global) {
  uint4 v;
  // The policy that createpolicy.fractional.L2::evict_first returns on sm_90 (CUTLASS's CacheHintSm90 has the
  // same number). As a constant it stays in uniform registers; the instruction's result would be moved there
  // for each load. (The qualifier .L2::evict_first is only for 32-byte loads, on later GPUs.)
  constexpr uint64_t kEvictFirst = 0x12f0000000000000;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global), "l"(kEvictFirst));
  return v;
}

// 2^x, within 2 ulp.
__device__ inline float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- conversions (sm_89) ----

// Converts two floats to E4M3, the first in the low byte. Rounds to nearest even and saturates at 448.
__device__ inline uint32_t cvt_e4m3x2(float first, float second) {
  uint16_t codes = 0;
  FATHOM_PTX_SM90("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
}

// ---- registers ----

// Emits no code. Hides how `x` was computed, so the compiler must keep it in a register. Without it the
// compiler may compute an address again at every use, at several instructions each.
template <class T>
__device__ inline T opaque(T x) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+r"(x));
  return x;
}

// Emits no code; marks the old values dead, so the compiler need not keep them up to here.
template <int kCount>
__device__ inline void mark_dead(float (&numbers)[kCount]) {
#pragma unroll
  for (float& x : numbers) asm volatile("" : "=f"(x));
}

#undef FATHOM_PTX_SM90
#undef FATHOM_PTX_SM90A

}  // namespace fathom::ptx
