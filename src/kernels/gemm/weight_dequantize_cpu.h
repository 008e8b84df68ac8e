// The weight matrices of linear_cpu and experts_cpu, dequantised to vectors of fp32, for one instruction set.
// Included once for each instruction set (hwy/foreach_target.h), hence the unusual guard.
#if defined(FATHOM_KERNELS_WEIGHT_DEQUANTIZE_CPU) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_WEIGHT_DEQUANTIZE_CPU
#undef FATHOM_KERNELS_WEIGHT_DEQUANTIZE_CPU
#else
#define FATHOM_KERNELS_WEIGHT_DEQUANTIZE_CPU
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "core/int8_group.h"
#include "core/mxfp4_nvfp4.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Other instruction sets use the reference implementations.
#define FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#if FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes  = hn::CappedTag<float, 16>;
using Bits   = hn::RebindToUnsigned<Lanes>;
using Floats = hn::Vec<Lanes>;

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Lanes()));

// A matrix has `depth` weights for each output, read in steps of kVectors vectors. Lane l of vector v is
// weight element(v, l) of the step: the order that is cheapest to unpack. Rows of x are permuted to the same
// order (permute_row). A last step that is not full is padded with zeros.
//
//   dequantize(output, k, w)        the step at k, a multiple of kStep
//   dequantize_last(output, k, w)   the last step, which is not full
//   from(output)                    the matrix from that output on
//   repeat()                        makes all outputs equal the first
//   address(output)                 address of its weights
//   prefetch(output, k)             prefetches what dequantize will read

struct Bf16Matrix {
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kStep    = kVectors * kLanes;

  const bf16* weights;
  int64_t depth;
  int64_t stride;  // elements from one output's weights to the next's

  static constexpr int64_t element(int64_t vector, int64_t lane) { return 2 * lane + vector; }

  HWY_INLINE void dequantize(int64_t output, int64_t k, Floats* w) const {
    const Lanes d;
    const Bits bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(weights + output * stride + k));
    w[0]             = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    w[1]             = hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xffff0000u)));
  }

  void dequantize_last(int64_t output, int64_t k, Floats* w) const {
    HWY_ALIGN bf16 last[kStep] = {};
    std::copy_n(weights + output * stride + k, depth - k, last);
    Bf16Matrix{last, kStep, 0}.dequantize(0, 0, w);
  }

  HWY_INLINE Bf16Matrix from(int64_t output) const { return {weights + output * stride, depth, stride}; }
  void repeat() { stride = 0; }
  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(weights + output * stride);
  }
  HWY_INLINE void prefetch(int64_t output, int64_t k) const { hwy::Prefetch(weights + output * stride + k); }
};

// A step is a group of 32 weights, in their order in memory.
struct Int8Matrix {
  static constexpr int64_t kVectors = kInt8Group / kLanes;
  static constexpr int64_t kStep    = kInt8Group;

  const int8_t* values;
  const bf16* scales;
  int64_t depth;
  int64_t values_stride, scales_stride;  // from one output's to the next's

  static constexpr int64_t element(int64_t vector, int64_t lane) { return vector * kLanes + lane; }

  // Exact: a value has 7 bits, a scale 8 (core/int8_group.h).
  HWY_INLINE void dequantize(int64_t output, int64_t k, Floats* w) const {
    const Lanes d;
    const hn::Rebind<int8_t, Lanes> bytes;
    const hn::Rebind<int32_t, Lanes> integers;
    const int8_t* at   = values + output * values_stride + k;
    const Floats scale = hn::Set(d, static_cast<float>(scales[output * scales_stride + k / kInt8Group]));
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v)
      w[v] = hn::Mul(hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(bytes, at + v * kLanes))), scale);
  }

  void dequantize_last(int64_t output, int64_t k, Floats* w) const {
    HWY_ALIGN int8_t last[kStep] = {};
    std::copy_n(values + output * values_stride + k, depth - k, last);
    Int8Matrix{last, scales + output * scales_stride + k / kInt8Group, kStep, 0, 0}.dequantize(0, 0, w);
  }

  HWY_INLINE Int8Matrix from(int64_t output) const {
    return {values + output * values_stride, scales + output * scales_stride, depth, values_stride,
            scales_stride};
  }
  void repeat() { values_stride = scales_stride = 0; }
  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(values + output * values_stride);
  }
  HWY_INLINE void prefetch(int64_t output, int64_t k) const {
    hwy::Prefetch(values + output * values_stride + k);
  }
};

// A panel of weights that were dequantised before, of whole steps.
struct FloatMatrix {
  static constexpr int64_t kVectors = Int8Matrix::kVectors;
  static constexpr int64_t kStep    = Int8Matrix::kStep;

  const float* weights;  // aligned
  int64_t depth;         // a multiple of kStep
  int64_t stride;

  HWY_INLINE void dequantize(int64_t output, int64_t k, Floats* w) const {
    const Lanes d;
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) w[v] = hn::Load(d, weights + output * stride + k + v * kLanes);
  }
  void dequantize_last(int64_t, int64_t, Floats*) const {}  // there is none

  HWY_INLINE FloatMatrix from(int64_t output) const { return {weights + output * stride, depth, stride}; }
  void repeat() { stride = 0; }
};

struct Mxfp4Matrix {
  static constexpr int64_t kVectors = 8;
  static constexpr int64_t kStep    = kVectors * kLanes;

  const uint8_t* values;
  const uint8_t* scales;
  int64_t depth;                         // a multiple of kMxfp4Block
  int64_t values_stride, scales_stride;  // from one output's to the next's

#if HWY_TARGET == HWY_AVX3
  // A 32-bit lane is eight nibbles.
  static constexpr int64_t element(int64_t vector, int64_t lane) { return 8 * lane + vector; }
#else
  // Four lanes are a block: low nibbles, then high ones, of its lower 8 bytes, then of its upper 8.
  static constexpr int64_t element(int64_t vector, int64_t lane) {
    const int64_t high = vector / 4, upper = vector / 2 % 2, odd = vector % 2;
    return lane / 4 * kMxfp4Block + 2 * (8 * upper + 2 * (lane % 4) + odd) + high;
  }
#endif

  HWY_INLINE void dequantize(int64_t output, int64_t k, Floats* w) const {
    uint32_t scale = 0;
    std::memcpy(&scale, scales_at(output, k), kStep / kMxfp4Block);
    table_lookup(hn::LoadU(Bits(), words_at(output, k)), expand_scales(scale), w);
  }

  HWY_INLINE void dequantize_last(int64_t output, int64_t k, Floats* w) const {
    const Bits bits;
    uint32_t scale = 0x7f7f7f7f;  // scale 1 for missing blocks: 0 times a subnormal would be slow
    for (int64_t b = (depth - k) / kMxfp4Block; b-- > 0;) scale = scale << 8 | scales_at(output, k)[b];
    const auto there = hn::FirstN(bits, static_cast<size_t>(depth - k) / 8);
    table_lookup(hn::MaskedLoad(there, bits, words_at(output, k)), expand_scales(scale), w);
  }

  HWY_INLINE Mxfp4Matrix from(int64_t output) const {
    return {values + output * values_stride, scales + output * scales_stride, depth, values_stride,
            scales_stride};
  }
  void repeat() { values_stride = scales_stride = 0; }
  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(values + output * values_stride);
  }
  HWY_INLINE void prefetch(int64_t output, int64_t k) const { hwy::Prefetch(words_at(output, k)); }

 private:
  HWY_INLINE const uint32_t* words_at(int64_t output, int64_t k) const {
    return reinterpret_cast<const uint32_t*>(values + output * values_stride + k / 2);
  }
  HWY_INLINE const uint8_t* scales_at(int64_t output, int64_t k) const {
    return scales + output * scales_stride + k / kMxfp4Block;
  }

  // Each lane gets the scale of its block, from the bytes of a step's scales. A byte becomes the exponent of
  // a float; 0 becomes the subnormal 2^-127.
  static HWY_INLINE Floats expand_scales(uint32_t scales) {
    const Lanes d;
    const Bits bits;
    const hn::Repartition<uint8_t, Lanes> bytes;
    // Moves block b's byte to the top byte of each lane of the b-th 16 bytes; zeros below.
    HWY_ALIGN static constexpr uint8_t kToTop[64] = {
        128, 128, 128, 0, 128, 128, 128, 0, 128, 128, 128, 0, 128, 128, 128, 0,   //
        128, 128, 128, 1, 128, 128, 128, 1, 128, 128, 128, 1, 128, 128, 128, 1,   //
        128, 128, 128, 2, 128, 128, 128, 2, 128, 128, 128, 2, 128, 128, 128, 2,   //
        128, 128, 128, 3, 128, 128, 128, 3, 128, 128, 128, 3, 128, 128, 128, 3};  //
    const auto all      = hn::BitCast(bytes, hn::Set(bits, scales));
    const auto top      = hn::BitCast(bits, hn::TableLookupBytesOr0(all, hn::Load(bytes, kToTop)));
    const auto exponent = hn::ShiftRight<1>(top);
    return hn::BitCast(d, hn::Max(exponent, hn::Set(bits, 0x00400000u)));
  }

#if HWY_TARGET == HWY_AVX3
  static HWY_INLINE void table_lookup(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
    const Lanes d;
    HWY_ALIGN static constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                    -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const auto values                            = hn::Load(d, kValues);
    // The permutation uses only the low four bits of an index.
    const auto value = [&](auto index) HWY_ATTR {
      return hn::Mul(hn::TableLookupLanes(values, hn::Indices512<float>{index.raw}), scale);
    };
    w[0] = value(nibbles);
    w[1] = value(hn::ShiftRight<4>(nibbles));
    w[2] = value(hn::ShiftRight<8>(nibbles));
    w[3] = value(hn::ShiftRight<12>(nibbles));
    w[4] = value(hn::ShiftRight<16>(nibbles));
    w[5] = value(hn::ShiftRight<20>(nibbles));
    w[6] = value(hn::ShiftRight<24>(nibbles));
    w[7] = value(hn::ShiftRight<28>(nibbles));
  }
#else
  // Two table look-ups give the two bytes of each value in bf16, which is the upper half of a float.
  static HWY_INLINE void table_lookup(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
    const Lanes d;
    const Bits bits;
    const hn::Repartition<uint8_t, Lanes> bytes;
    const hn::Repartition<uint16_t, Lanes> shorts;
    HWY_ALIGN static constexpr uint8_t kUpper[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    HWY_ALIGN static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                                     0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    const auto halves                             = [&](auto pairs, Floats* to) HWY_ATTR {
      const auto two = hn::BitCast(bits, pairs);
      to[0]          = hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(two)), scale);
      to[1]          = hn::Mul(hn::BitCast(d, hn::And(two, hn::Set(bits, 0xffff0000u))), scale);
    };
    const auto four = [&](auto codes, Floats* to) HWY_ATTR {
      const auto upper = hn::TableLookupBytes(hn::LoadDup128(bytes, kUpper), codes);
      const auto lower = hn::TableLookupBytes(hn::LoadDup128(bytes, kLower), codes);
      halves(hn::InterleaveLower(bytes, lower, upper), to);
      halves(hn::InterleaveUpper(bytes, lower, upper), to + 2);
    };
    const auto low = hn::Set(bytes, 15);
    four(hn::And(hn::BitCast(bytes, nibbles), low), w);
    four(hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(shorts, nibbles))), low), w + 4);
  }
#endif
};

// Index of element i of a step in a permuted row.
template <class Matrix>
struct RowPermutation {
  int32_t index[Matrix::kStep];

  constexpr RowPermutation() : index() {
    for (int64_t v = 0; v < Matrix::kVectors; ++v)
      for (int64_t l = 0; l < kLanes; ++l)
        index[Matrix::element(v, l)] = static_cast<int32_t>(v * kLanes + l);
  }
};

// Permutes a row to the order of the matrix's weights and pads it with zeros to round_up(depth, kStep)
// floats.
template <class Matrix>
void permute_row(const float* row, int64_t depth, float* permuted) {
  const auto permute_step = [&](int64_t k, auto at) {
    for (int64_t v = 0; v < Matrix::kVectors; ++v)
      for (int64_t l = 0; l < kLanes; ++l) permuted[k + v * kLanes + l] = at(k + Matrix::element(v, l));
  };
  int64_t k = 0;
  for (; k + Matrix::kStep <= depth; k += Matrix::kStep) permute_step(k, [&](int64_t i) { return row[i]; });
  if (k < depth) permute_step(k, [&](int64_t i) { return i < depth ? row[i] : 0.0f; });
}

// Outputs [begin, end) as a matrix that many rows can share: dequantised exactly into `panel`, to bf16 if
// that holds the weights, with the element order of `matrix`.
HWY_NOINLINE inline Bf16Matrix shared_panel(const Mxfp4Matrix& matrix, int64_t begin, int64_t end,
                                            float* panel) {
  const Bits bits;
  const int64_t whole = matrix.depth / Mxfp4Matrix::kStep * Mxfp4Matrix::kStep;
  int64_t depth       = 0;
  auto* to            = reinterpret_cast<uint32_t*>(panel);
  for (int64_t n = begin; n < end; ++n)
    for (depth = 0; depth < matrix.depth; depth += Mxfp4Matrix::kStep) {
      Floats w[Mxfp4Matrix::kVectors];
      depth < whole ? matrix.dequantize(n, depth, w) : matrix.dequantize_last(n, depth, w);
#pragma GCC unroll 4
      for (int64_t v = 0; v < Mxfp4Matrix::kVectors; v += 2, to += kLanes)
        hn::Store(hn::Or(hn::ShiftRight<16>(hn::BitCast(bits, w[v])), hn::BitCast(bits, w[v + 1])), bits, to);
    }
  return {reinterpret_cast<const bf16*>(panel), depth, depth};
}
HWY_NOINLINE inline FloatMatrix shared_panel(const Int8Matrix& matrix, int64_t begin, int64_t end,
                                             float* panel) {
  const Lanes d;
  const int64_t whole = matrix.depth / Int8Matrix::kStep * Int8Matrix::kStep;
  int64_t depth       = 0;
  float* to           = panel;
  for (int64_t n = begin; n < end; ++n)
    for (depth = 0; depth < matrix.depth; depth += Int8Matrix::kStep) {
      Floats w[Int8Matrix::kVectors];
      depth < whole ? matrix.dequantize(n, depth, w) : matrix.dequantize_last(n, depth, w);
#pragma GCC unroll 4
      for (int64_t v = 0; v < Int8Matrix::kVectors; ++v, to += kLanes) hn::Store(w[v], d, to);
    }
  return {panel, depth, depth};
}
HWY_INLINE Bf16Matrix shared_panel(const Bf16Matrix& matrix, int64_t begin, int64_t, float*) {
  return matrix.from(begin);
}

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL
#endif  // FATHOM_KERNELS_WEIGHT_DEQUANTIZE_CPU
