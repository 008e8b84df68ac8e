// wgmma: asynchronous matrix products of a warpgroup (four warps, the first a multiple of four) on the tensor
// cores (PTX ISA section 9.7.15, "Asynchronous Warpgroup Level Matrix Instructions"; sm_90a only).
//
//   d (64 x N, fp32) (+)= a (64 x 16) b (16 x N)     a, b bf16; b in shared memory, a there or in registers
//
// With warp w of the warpgroup, g = lane / 4 and t = lane % 4, a thread holds
//   d  row 16 w + g (d[4 j], d[4 j + 1]) and row 16 w + g + 8 (d[4 j + 2], d[4 j + 3])
//      of columns 8 j + 2 t and 8 j + 2 t + 1: N / 2 numbers
//   a  the a fragment of mma_m16n8k16 (cuda/ptx.cuh) for the rows 16 w .. 16 w + 16
//
// Order of calls: wgmma_fence(); any number of products; wgmma_commit_group(); ... wgmma_wait_group<n>().
// Between a product and the wait that covers it, the thread must not access d, nor a in registers;
// warpgroup_fence_operand() after the wait keeps the compiler from moving such accesses up. Shared memory
// that threads wrote needs fence_proxy_async() first.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FATHOM_WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define FATHOM_WGMMA_ASM(...) __trap()
#endif

// Orders earlier writes to registers, d among them, before the products that follow. (Products that add to
// the same d need no fence between them.)
__device__ inline void wgmma_fence() { FATHOM_WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of products.
__device__ inline void wgmma_commit_group() {
  FATHOM_WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the latest kPending groups are incomplete.
template <int kPending>
__device__ inline void wgmma_wait_group() {
  FATHOM_WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Emits no code. The compiler moves no access to these registers across it.
template <int kCount>
__device__ inline void warpgroup_fence_operand(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ inline void warpgroup_fence_operand(uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// The contiguous index of an operand in shared memory: k, or the other one (m of a, n of b).
enum class Major { k = 0, mn = 1 };

// The matrix descriptor of an operand in shared memory with the 128-byte swizzle: rows of 128 bytes, in which
// 16-byte piece c of row r is at c ^ (r % 8), the layout of tensor_map() with a swizzle and of Bf16KvPages.
//   Major::k   row r holds 64 values of k for index r of m or n. The next 16 values of k are 32 bytes
//   further. Major::mn  row r holds 64 indices of m or n at k = r. The next 16 values of k are 2048 bytes
//   further, and
//              indices 64 to 127 of m or n `next_64_bytes` further.
// `address` (shared_address) of the first row is a multiple of 1024. advance_descriptor() makes the
// descriptors of later values of k.
__device__ inline uint64_t smem_descriptor_128b(uint32_t address, int next_64_bytes = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t{static_cast<uint32_t>(next_64_bytes) >> 4} << 16 |
         (address & 0x3ffff) >> 4;
}

// The descriptor of the operand `bytes` (a multiple of 16) further. Adds in 32 bits: a 64-bit add would cost
// each product some instructions.
__device__ inline uint64_t advance_descriptor(uint64_t operand, int bytes) {
  return (operand & 0xffffffff00000000) |
         (static_cast<uint32_t>(operand) + static_cast<uint32_t>(bytes) / 16);
}

// Operand lists of the asm statements: ten register names, and the registers of d.
#define FATHOM_TEN(t) \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FATHOM_NAMES_4 "%0, %1, %2, %3"
#define FATHOM_NAMES_8 FATHOM_NAMES_4 ", %4, %5, %6, %7"
#define FATHOM_NAMES_16 FATHOM_TEN() "%10, %11, %12, %13, %14, %15"
#define FATHOM_NAMES_32 FATHOM_TEN() FATHOM_TEN(1) FATHOM_TEN(2) "%30, %31"
#define FATHOM_NAMES_48 \
  FATHOM_TEN() FATHOM_TEN(1) FATHOM_TEN(2) FATHOM_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47"
#define FATHOM_NAMES_56 \
  FATHOM_TEN() FATHOM_TEN(1) FATHOM_TEN(2) FATHOM_TEN(3) FATHOM_TEN(4) "%50, %51, %52, %53, %54, %55"
#define FATHOM_NAMES_64 \
  FATHOM_TEN() FATHOM_TEN(1) FATHOM_TEN(2) FATHOM_TEN(3) FATHOM_TEN(4) FATHOM_TEN(5) "%60, %61, %62, %63"
#define FATHOM_NAMES_96 \
  FATHOM_TEN()          \
  FATHOM_TEN(1)         \
  FATHOM_TEN(2)         \
  FATHOM_TEN(3)         \
  FATHOM_TEN(4) FATHOM_TEN(5) FATHOM_TEN(6) FATHOM_TEN(7) FATHOM_TEN(8) "%90, %91, %92, %93, %94, %95"
#define FATHOM_NAMES_120 \
  FATHOM_TEN()           \
  FATHOM_TEN(1)          \
  FATHOM_TEN(2)          \
  FATHOM_TEN(3)          \
  FATHOM_TEN(4)          \
  FATHOM_TEN(5)          \
  FATHOM_TEN(6)          \
  FATHOM_TEN(7)          \
  FATHOM_TEN(8) FATHOM_TEN(9) FATHOM_TEN(10) "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119"
#define FATHOM_NAMES_128 \
  FATHOM_TEN()           \
  FATHOM_TEN(1) FATHOM_TEN(2) FATHOM_TEN(3) FATHOM_TEN(4) FATHOM_TEN(5) FATHOM_TEN(6) FATHOM_TEN(7)    \
      FATHOM_TEN(8) FATHOM_TEN(9) FATHOM_TEN(10) FATHOM_TEN(11) "%120, %121, %122, %123, %124, %125, " \
                                                                "%126, %127"
#define FATHOM_D_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FATHOM_D_8(i) FATHOM_D_4(i), FATHOM_D_4(i + 4)
#define FATHOM_D_16(i) FATHOM_D_8(i), FATHOM_D_8(i + 8)
#define FATHOM_D_32(i) FATHOM_D_16(i), FATHOM_D_16(i + 16)
#define FATHOM_D_48(i) FATHOM_D_32(i), FATHOM_D_16(i + 32)
#define FATHOM_D_56(i) FATHOM_D_32(i), FATHOM_D_16(i + 32), FATHOM_D_8(i + 48)
#define FATHOM_D_64(i) FATHOM_D_32(i), FATHOM_D_32(i + 32)
#define FATHOM_D_96(i) FATHOM_D_64(i), FATHOM_D_32(i + 64)
#define FATHOM_D_120(i) FATHOM_D_64(i), FATHOM_D_32(i + 64), FATHOM_D_16(i + 96), FATHOM_D_8(i + 112)
#define FATHOM_D_128(i) FATHOM_D_64(i), FATHOM_D_64(i + 64)

// d += a b if `add`, else d = a b, with a in registers. One function for each N, with `count` = N / 2
// registers of d; a0 ... transposed are the numbers of the operands that follow d.
#define FATHOM_WGMMA_REGISTERS(n, count, a0, a1, a2, a3, b0, p, transposed)                              \
  template <Major kB = Major::k>                                                                         \
  __device__ inline void wgmma(float(&d)[count], const uint32_t(&a)[4], uint64_t b, bool add) {          \
    FATHOM_WGMMA_ASM(                                                                                    \
        "{\n.reg .pred add;\nsetp.ne.b32 add, %" #p                                                      \
        ", 0;\n"                                                                                         \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" FATHOM_NAMES_##count                \
        "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 ", add, 1, 1, %" #transposed ";\n}"         \
        : FATHOM_D_##count(0)                                                                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}), "n"(static_cast<int>(kB))); \
  }
FATHOM_WGMMA_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9, 10)
FATHOM_WGMMA_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13, 14)
FATHOM_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21, 22)
FATHOM_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38)
FATHOM_WGMMA_REGISTERS(96, 48, 48, 49, 50, 51, 52, 53, 54)
FATHOM_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70)
FATHOM_WGMMA_REGISTERS(192, 96, 96, 97, 98, 99, 100, 101, 102)
FATHOM_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133, 134)

// The same with a in shared memory.
#define FATHOM_WGMMA_SHARED(n, count, a0, b0, p, transposed_a, transposed_b)                                 \
  template <Major kA = Major::k, Major kB = Major::k>                                                        \
  __device__ inline void wgmma(float(&d)[count], uint64_t a, uint64_t b, bool add) {                         \
    FATHOM_WGMMA_ASM("{\n.reg .pred add;\nsetp.ne.b32 add, %" #p                                             \
                     ", 0;\n"                                                                                \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" FATHOM_NAMES_##count       \
                     "}, %" #a0 ", %" #b0 ", add, 1, 1, %" #transposed_a ", %" #transposed_b ";\n}"          \
                     : FATHOM_D_##count(0)                                                                   \
                     : "l"(a), "l"(b), "r"(int{add}), "n"(static_cast<int>(kA)), "n"(static_cast<int>(kB))); \
  }
FATHOM_WGMMA_SHARED(64, 32, 32, 33, 34, 35, 36)
FATHOM_WGMMA_SHARED(112, 56, 56, 57, 58, 59, 60)
FATHOM_WGMMA_SHARED(128, 64, 64, 65, 66, 67, 68)
FATHOM_WGMMA_SHARED(192, 96, 96, 97, 98, 99, 100)
FATHOM_WGMMA_SHARED(240, 120, 120, 121, 122, 123, 124)
FATHOM_WGMMA_SHARED(256, 128, 128, 129, 130, 131, 132)

// The same for other types of a and b, of which both lie in shared memory along k: 32 bytes of k a product.
// e4m3 sums are kept to about 14 bits of mantissa; of tf32 the lowest 13 bits of an fp32 number are ignored.
#define FATHOM_WGMMA_ALONG_K(name, n, k, types, count, a0, b0, p)                                          \
  __device__ inline void name(float(&d)[count], uint64_t a, uint64_t b, bool add) {                        \
    FATHOM_WGMMA_ASM("{\n.reg .pred add;\nsetp.ne.b32 add, %" #p                                           \
                     ", 0;\n"                                                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k" #k ".f32." types " {" FATHOM_NAMES_##count \
                     "}, %" #a0 ", %" #b0 ", add, 1, 1;\n}"                                                \
                     : FATHOM_D_##count(0)                                                                 \
                     : "l"(a), "l"(b), "r"(int{add}));                                                     \
  }
FATHOM_WGMMA_ALONG_K(wgmma_e4m3, 128, 32, "e4m3.e4m3", 64, 64, 65, 66)
FATHOM_WGMMA_ALONG_K(wgmma_e4m3, 192, 32, "e4m3.e4m3", 96, 96, 97, 98)
FATHOM_WGMMA_ALONG_K(wgmma_e4m3, 256, 32, "e4m3.e4m3", 128, 128, 129, 130)
FATHOM_WGMMA_ALONG_K(wgmma_tf32, 256, 8, "tf32.tf32", 128, 128, 129, 130)

#undef FATHOM_WGMMA_ALONG_K
#undef FATHOM_WGMMA_REGISTERS
#undef FATHOM_WGMMA_SHARED
#undef FATHOM_TEN
#undef FATHOM_NAMES_4
#undef FATHOM_NAMES_8
#undef FATHOM_NAMES_16
#undef FATHOM_NAMES_32
#undef FATHOM_NAMES_48
#undef FATHOM_NAMES_56
#undef FATHOM_NAMES_64
#undef FATHOM_NAMES_96
#undef FATHOM_NAMES_128
#undef FATHOM_NAMES_120
#undef FATHOM_D_4
#undef FATHOM_D_8
#undef FATHOM_D_16
#undef FATHOM_D_32
#undef FATHOM_D_48
#undef FATHOM_D_56
#undef FATHOM_D_64
#undef FATHOM_D_96
#undef FATHOM_D_128
#undef FATHOM_D_120
#undef FATHOM_WGMMA_ASM

}  // namespace fathom::ptx
