// Sums of four numbers in registers, for kernels that take the norm of a row.
#pragma once

#include <cuda_runtime.h>

namespace fathom::kernels {

__device__ inline float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// The intrinsics fix the rounding. Otherwise the compiler would contract products and sums differently in
// each kernel, and a row's bits would depend on the kernel.
__device__ inline float sum_of_squares(float4 v) {
  return __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmul_rn(v.x, v.x))));
}

}  // namespace fathom::kernels
