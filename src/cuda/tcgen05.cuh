// tcgen05: the tensor cores of Blackwell, whose sums lie in tensor memory (PTX ISA 9.7.16; sm_100a only). A
// pair of CTAs, the first two of a cluster, multiplies together (.cta_group::2): each holds half of the rows
// of a, half of those of b, and the sums of its rows.
//
// A product is asynchronous: tcgen05_commit lets an mbarrier count its end. Tensor memory has 128 lanes of
// 512 columns of 32 bits; an address is lane << 16 | column. Compiled here, never run: nobody lends us the
// GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/ptx.cuh"

namespace fathom::ptx {

#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
#define FATHOM_PTX_SM100A(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_PTX_SM100A(...) __trap()
#endif

// A whole warp of each CTA of the pair. Writes the address of `columns` (a power of two, at least 32) to
// shared memory; release them before the CTA exits.
__device__ inline void tcgen05_alloc(uint32_t* address, int columns) {
  FATHOM_PTX_SM100A(
      "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(address)),
      "r"(columns)
      : "memory");
}
__device__ inline void tcgen05_relinquish_alloc_permit() {
  FATHOM_PTX_SM100A("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
}
__device__ inline void tcgen05_dealloc(uint32_t address, int columns) {
  FATHOM_PTX_SM100A("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
}

// One thread of the first CTA: d (+)= a b^T for 16 values of k, with descriptors of
// cuda/tcgen05_descriptor.h.
__device__ inline void tcgen05_mma(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  FATHOM_PTX_SM100A(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %4, 0;\n"
      "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, add;\n}" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "r"(int{add})
      : "memory");
}

// The barrier at this offset in each CTA of `mask` counts an arrival when this thread's products so far are
// done.
__device__ inline void tcgen05_commit(uint64_t* barrier, uint16_t mask) {
  FATHOM_PTX_SM100A(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::
          "r"(shared_address(barrier)),
      "h"(mask)
      : "memory");
}

// Around barriers by which threads hand tensor memory to each other.
__device__ inline void tcgen05_fence_before_thread_sync() {
  FATHOM_PTX_SM100A("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ inline void tcgen05_fence_after_thread_sync() {
  FATHOM_PTX_SM100A("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// A warp reads 32 columns of its 32 lanes (those of warp % 4): a thread gets the columns of its lane.
// Complete after tcgen05_wait_ld.
__device__ inline void tcgen05_ld_32x32b_x32(uint32_t (&v)[32], uint32_t address) {
  FATHOM_PTX_SM100A(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
      : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]),
        "=r"(v[8]), "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]),
        "=r"(v[16]), "=r"(v[17]), "=r"(v[18]), "=r"(v[19]), "=r"(v[20]), "=r"(v[21]), "=r"(v[22]),
        "=r"(v[23]), "=r"(v[24]), "=r"(v[25]), "=r"(v[26]), "=r"(v[27]), "=r"(v[28]), "=r"(v[29]),
        "=r"(v[30]), "=r"(v[31])
      : "r"(address));
}
__device__ inline void tcgen05_wait_ld() { FATHOM_PTX_SM100A("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

// cp_async_bulk_tensor_load into this CTA, which completes on a barrier of either CTA of the pair; `barrier`
// is from mapa_shared_cluster.
__device__ inline void cp_async_bulk_tensor_load_pair(void* shared, const void* map, int row, int column,
                                                      uint32_t barrier) {
  FATHOM_PTX_SM100A(
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], "
      "[%4];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

#undef FATHOM_PTX_SM100A

}  // namespace fathom::ptx
