// Scales and codes by CUDA's own conversions (cuda_fp8.h, cuda_fp4.h), and CUDA's division. On Hopper those
// to E2M1 and E8M0 are not instructions but functions in integer arithmetic.
#pragma once

#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/quant/formats.h"

namespace fathom::lab::quantize_formats {

template <class Format>
constexpr float kLargest = kernels::kPacked<Format>                            ? 6
                           : std::is_same_v<kernels::CodeOf<Format>, fp8_e4m3> ? 448
                           : std::is_same_v<kernels::CodeOf<Format>, fp8_e5m2> ? 57344
                                                                               : 127;

// The scale of a group from its largest magnitude; `given` is the scale of the tensor.
template <class Format>
__device__ kernels::ScaleOf<Format> scale_of(float amax, [[maybe_unused]] float given) {
  if constexpr (std::is_same_v<Format, kernels::Nvfp4>)
    return fp8_e4m3::from_bits(__nv_cvt_float_to_fp8(amax / 6 / given, __NV_SATFINITE, __NV_E4M3));
  else if constexpr (std::is_same_v<Format, kernels::Mxfp8>)
    return e8m0::from_bits(__nv_cvt_float_to_e8m0(amax / 448, __NV_SATFINITE, cudaRoundPosInf));
  else if constexpr (std::is_same_v<Format, kernels::Mxfp4>)
    return e8m0::from_bits(__nv_cvt_float_to_e8m0(amax / 4, __NV_SATFINITE, cudaRoundZero));
  else
    return fmaxf(amax / kLargest<Format>, kernels::kSmallestScale);
}

// What the numbers of a group are divided by.
template <class Format>
__device__ float unit_of(kernels::ScaleOf<Format> scale, [[maybe_unused]] float given) {
  if constexpr (std::is_same_v<Format, kernels::Nvfp4>)
    return static_cast<float>(scale) * given;
  else
    return static_cast<float>(scale);
}

template <class Format>
__device__ uint32_t code_of(float x, float unit) {
  if constexpr (kernels::kPacked<Format>)  // the scale of NVFP4 may be 0
    return unit > 0 ? __nv_cvt_float_to_fp4(x / unit, __NV_E2M1, cudaRoundNearest) : 0u;
  else if constexpr (std::is_same_v<kernels::CodeOf<Format>, int8_t>)
    return static_cast<uint8_t>(__float2int_rn(x / unit));
  else
    return __nv_cvt_float_to_fp8(x / unit, __NV_SATFINITE,
                                 std::is_same_v<kernels::CodeOf<Format>, fp8_e4m3> ? __NV_E4M3 : __NV_E5M2);
}

}  // namespace fathom::lab::quantize_formats
