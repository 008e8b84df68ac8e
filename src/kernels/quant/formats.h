// Quantised matrices. A number is code * unit, with
//
//   code(r, c) = round(x(r, c) / unit)          to nearest, ties to even, saturating
//
//   format                      group that shares a scale   scale                       unit
//   TensorScaled E4M3, E5M2     the tensor                  given                       scale
//   RowScaled    + INT8         a row                       fp32, amax / largest code   scale
//   BlockScaled  + INT8         128 of a row                fp32, amax / largest code   scale
//   Mxfp8        E4M3           32 of a row                 E8M0, core/mxfp8.h          scale
//   Mxfp4        E2M1           32 of a row                 E8M0, core/mxfp4_nvfp4.h    scale
//   Nvfp4        E2M1           16 of a row                 E4M3, core/mxfp4_nvfp4.h    scale * tensor scale
//
// The largest codes are 448 (E4M3), 57344 (E5M2), 127 (INT8), 6 (E2M1). The last group of a row may be short.
// Two E2M1 codes lie in a byte, the first in the low nibble; a row of odd length ends with a nibble of 0.
//
// A group with an infinity or a NaN gets a NaN scale and codes of 0: all of it decodes to NaN. A given scale
// keeps such a tensor: infinities saturate, a NaN gets the code of NaN, 0x7f. No fp32 scale is below 2^-64,
// so that the product of two, which a GEMM applies, is not 0; smaller groups lose precision. A given scale is
// NaN, or from 2^-64 to the largest that a bf16 tensor can have: 2^128 over the largest code (NVFP4: over
// 6 * 448).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/view.h"

namespace fathom::kernels {

inline constexpr float kSmallestScale = 0x1p-64f;  // of fp32

// x is R x C. Codes are R x C without gaps between rows; those of E2M1 R x ceil(C / 2). kBlock neighbours of
// a row share a scale.
template <class Code>
struct TensorScaled {
  View<Code, 2> codes;
  View<float, 1> scale;  // one
};
template <class Code>
struct RowScaled {
  View<Code, 2> codes;
  View<float, 1> scales;  // R
};
// gemm_fp8_block_scaled() wants the scales of its first operand transposed: a view with strides {1, R}.
template <class Code>
struct BlockScaled {
  static constexpr int64_t kBlock = 128;
  View<Code, 2> codes;
  View<float, 2> scales;  // R x ceil(C / kBlock), with any strides, as below
};
struct Mxfp8 {
  static constexpr int64_t kBlock = 32;
  View<fp8_e4m3, 2> codes;
  View<e8m0, 2> scales;
};
struct Mxfp4 {
  static constexpr int64_t kBlock = 32;
  View<uint8_t, 2> codes;
  View<e8m0, 2> scales;
};
struct Nvfp4 {
  static constexpr int64_t kBlock = 16;
  View<uint8_t, 2> codes;
  View<fp8_e4m3, 2> scales;
  View<float, 1> tensor_scale;  // one, given
};

// What a format is made of, for code that is written for all.

// Two codes in a byte.
template <class Format>
inline constexpr bool kPacked = std::is_same_v<Format, Mxfp4> || std::is_same_v<Format, Nvfp4>;
template <class Format>
inline constexpr bool kInBlocks = requires {
  Format::kBlock;
};
// A scale of the tensor is given to quantize().
template <class Format>
inline constexpr bool kScaleIsGiven = requires(Format q) {
  q.scale;
}
|| requires(Format q) { q.tensor_scale; };

template <class Format>
using CodeOf = typename decltype(Format::codes)::value_type;
template <class Format>
struct ScaleType {
  using Type = float;
};
template <class Format>
requires kInBlocks<Format>
struct ScaleType<Format> {
  using Type = typename decltype(Format::scales)::value_type;
};
template <class Format>
using ScaleOf = typename ScaleType<Format>::Type;

// Codes, in bytes, and scales of a row. A format whose only scale is given has no others.
template <class Format>
FATHOM_HD constexpr int64_t code_columns(int64_t columns) {
  return kPacked<Format> ? (columns + 1) / 2 : columns;
}
template <class Format>
FATHOM_HD constexpr int64_t scale_columns(int64_t columns) {
  if constexpr (kInBlocks<Format>) return (columns + Format::kBlock - 1) / Format::kBlock;
  return kScaleIsGiven<Format> ? 0 : 1;
}

// The views of memory for a matrix of `rows` x `columns`. Scales of blocks are transposed in memory if
// `transposed`.
template <class Format>
Format views(int64_t rows, int64_t columns, CodeOf<Format>* codes, ScaleOf<Format>* scales,
             float* tensor_scale, bool transposed = false) {
  Format q;
  q.codes = {codes, {rows, code_columns<Format>(columns)}};
  if constexpr (kInBlocks<Format>) {
    const int64_t blocks = scale_columns<Format>(columns);
    q.scales             = transposed ? View<ScaleOf<Format>, 2>(scales, {rows, blocks}, {1, rows})
                                      : View<ScaleOf<Format>, 2>(scales, {rows, blocks});
  } else if constexpr (!kScaleIsGiven<Format>) {
    q.scales = {scales, {rows}};
  }
  if constexpr (requires { q.scale; }) q.scale = {tensor_scale, {1}};
  if constexpr (requires { q.tensor_scale; }) q.tensor_scale = {tensor_scale, {1}};
  return q;
}

}  // namespace fathom::kernels
