// The exponential of a softmax, in the base of the hardware: exp(x - max) = 2^(x log2(e) - max log2(e)), a
// multiply-add and one instruction of the special-function unit (error 2^-22, flushes subnormals).
#pragma once

namespace fathom::lab::online_softmax_gpu {

inline constexpr float kLog2e = 0x1.715476p+0f;

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// `shift` is max * kLog2e; its rounding is the same for a whole row and cancels in the quotient.
__device__ inline float exponential(float x, float shift) { return power_of_two(fmaf(x, kLog2e, -shift)); }

}  // namespace fathom::lab::online_softmax_gpu
