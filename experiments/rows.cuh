// Rows of bf16 in a kernel: moving 8 numbers by one instruction, and reducing over the threads that share a
// row. The threads of a row are threadIdx.x; threadIdx.y tells apart the rows of one block.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"

namespace fathom::lab::rows {

inline constexpr int kEight = 8;  // bf16 in 16 bytes, the widest load

__device__ inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ inline uint32_t pair_of(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float rounded(float v) { return low(pair_of(v, 0)); }  // rounded to bf16
// Two numbers in the two bytes, the lower first; beyond 448 they become 448.
__device__ inline uint32_t e4m3_pair_of(float low, float high) {
  uint16_t pair = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
#else
  __trap();  // compiled for older architectures, never reached at run time
#endif
  return pair;
}

// kWidth neighbours of a row, as numbers to compute with.
template <int kWidth>
struct Elements {
  float at[kWidth];
};

__device__ inline Elements<kEight> unpack(uint4 packed) {
  return {low(packed.x), high(packed.x), low(packed.y), high(packed.y),
          low(packed.z), high(packed.z), low(packed.w), high(packed.w)};
}
__device__ inline uint4 pack(const Elements<kEight>& e) {
  return {pair_of(e.at[0], e.at[1]), pair_of(e.at[2], e.at[3]), pair_of(e.at[4], e.at[5]),
          pair_of(e.at[6], e.at[7])};
}

// The same numbers by other instructions. A kernel that unpacks a row before and after a barrier uses these
// the second time; otherwise the compiler sees one computation and keeps 8 floats instead of 4 packed
// registers.
__device__ inline Elements<kEight> unpack_again(uint4 packed) {
  const auto low  = [](uint32_t pair) { return __uint_as_float(__byte_perm(pair, 0, 0x1044)); };
  const auto high = [](uint32_t pair) { return __uint_as_float(__byte_perm(pair, 0, 0x3244)); };
  return {low(packed.x), high(packed.x), low(packed.y), high(packed.y),
          low(packed.z), high(packed.z), low(packed.w), high(packed.w)};
}

// A row as vectors of 8, where it begins at a multiple of 16 bytes.
__device__ inline const uint4* eights(const bf16* row) { return reinterpret_cast<const uint4*>(row); }
__device__ inline uint4* eights(bf16* row) { return reinterpret_cast<uint4*>(row); }

// For data that is not read again on this multiprocessor: the load does not allocate in L1.
__device__ inline uint4 load_once(const uint4* from) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

// Through the read-only path and L1: for data that is read again soon. Width 8 needs an aligned `from`.
template <int kWidth>
__device__ inline Elements<kWidth> load(const bf16* from) {
  static_assert(kWidth == kEight || kWidth == 1);
  if constexpr (kWidth == kEight)
    return unpack(__ldg(eights(from)));
  else
    return {low(__ldg(reinterpret_cast<const uint16_t*>(from)))};
}
// For data that this kernel wrote, which the read-only path might not see.
template <int kWidth>
__device__ inline Elements<kWidth> load_written(const bf16* from) {
  if constexpr (kWidth == kEight)
    return unpack(*eights(from));
  else
    return {low(from->bits)};
}
template <int kWidth>
__device__ inline void store(bf16* to, const Elements<kWidth>& e) {
  if constexpr (kWidth == kEight)
    *eights(to) = pack(e);
  else
    *to = bf16::from_bits(pair_of(e.at[0], 0.0f));
}

// As e4m3; width 8 needs `to` at a multiple of 8 bytes.
template <int kWidth>
__device__ inline void store(fp8_e4m3* to, const Elements<kWidth>& e) {
  if constexpr (kWidth == kEight)
    *reinterpret_cast<uint2*>(to) = {e4m3_pair_of(e.at[0], e.at[1]) | e4m3_pair_of(e.at[2], e.at[3]) << 16,
                                     e4m3_pair_of(e.at[4], e.at[5]) | e4m3_pair_of(e.at[6], e.at[7]) << 16};
  else
    *to = fp8_e4m3::from_bits(e4m3_pair_of(e.at[0], 0) & 0xff);
}

inline bool aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }
// Whether every row can be moved in vectors of 8 elements, 16 bytes in bf16.
template <class T>
bool in_eights(View<T, 2> v) {
  return v.extent(1) % kEight == 0 && v.stride(0) % kEight == 0 && v.stride(1) == 1 &&
         aligned(v.data(), kEight * sizeof(T));
}
template <class T>
bool in_eights(View<T, 1> v) {
  return v.extent(0) % kEight == 0 && v.stride(0) == 1 && aligned(v.data(), kEight * sizeof(T));
}

// Reduces over all threads of a row; every thread gets the result, in the same order of operations: first
// over each warp; then, in a block, one lane of each warp calls put(), then a barrier, and all threads call
// total(). `partial` belongs to one reduction, so no barrier is needed after total().
struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
template <class Op>
__device__ inline float over_warp(float v, Op op) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}
template <int kThreads>
struct Partial {
  static_assert(kThreads % 32 == 0);
  alignas(16) float of_warp[kThreads / 32];
};
template <int kThreads>
__device__ inline void put(float of_warp, Partial<kThreads>& partial) {
  if (threadIdx.x % 32 == 0) partial.of_warp[threadIdx.x / 32] = of_warp;
}
template <class Op, int kThreads>
__device__ inline float total(const Partial<kThreads>& partial, Op op) {
  float v = partial.of_warp[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) v = op(v, partial.of_warp[w]);
  return v;
}
// The whole reduction. With one warp a row it needs neither `partial` nor a barrier.
template <class Op, int kThreads>
__device__ inline float over_row(float v, Op op, Partial<kThreads>& partial) {
  v = over_warp(v, op);
  if constexpr (kThreads > 32) {
    put(v, partial);
    __syncthreads();  // all warps have written before any reads
    v = total(partial, op);
  }
  return v;
}

}  // namespace fathom::lab::rows
