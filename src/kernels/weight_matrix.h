// The weight matrices of linear_cpu and experts_cpu as vectors of fp32, for one instruction set. Included
// once for each (hwy/foreach_target.h), hence the unusual guard.
#if defined(FATHOM_KERNELS_WEIGHT_MATRIX) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_WEIGHT_MATRIX
#undef FATHOM_KERNELS_WEIGHT_MATRIX
#else
#define FATHOM_KERNELS_WEIGHT_MATRIX
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "core/fp4_blocks.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Elsewhere the references do the work.
#define FATHOM_KERNELS_HAVE_TILE (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#if FATHOM_KERNELS_HAVE_TILE

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes  = hn::CappedTag<float, 16>;
using Bits   = hn::RebindToUnsigned<Lanes>;
using Floats = hn::Vec<Lanes>;

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Lanes()));

// A matrix is `depth` weights for each of its outputs, read in steps of kVectors vectors. Lane l of vector v
// is element(v, l) of the step, whatever is cheapest to unpack, and rows to multiply with are put in that
// order (prepare_row). Of a last step that is not whole, the rest is zeros.
//
//   expand(output, k, w)        the step at k, a multiple of kStep
//   expand_last(output, k, w)   the one that is not whole
//   from(output)                the matrix from that output on
//   repeat()                    makes all outputs the first
//   address(output)             where its weights begin
//   prefetch(output, k)         fetches what expand will read

struct Bf16Matrix {
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kStep    = kVectors * kLanes;

  const bf16* weights;
  int64_t depth;
  int64_t stride;  // from one output's weights to the next's

  static constexpr int64_t element(int64_t vector, int64_t lane) { return 2 * lane + vector; }

  HWY_INLINE void expand(int64_t output, int64_t k, Floats* w) const {
    const Lanes d;
    const Bits bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(weights + output * stride + k));
    w[0]             = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    w[1]             = hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xffff0000u)));
  }

  void expand_last(int64_t output, int64_t k, Floats* w) const {
    HWY_ALIGN bf16 last[kStep] = {};
    std::copy_n(weights + output * stride + k, depth - k, last);
    Bf16Matrix{last, kStep, 0}.expand(0, 0, w);
  }

  HWY_INLINE Bf16Matrix from(int64_t output) const { return {weights + output * stride, depth, stride}; }
  void repeat() { stride = 0; }
  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(weights + output * stride);
  }
  HWY_INLINE void prefetch(int64_t output, int64_t k) const { hwy::Prefetch(weights + output * stride + k); }
};

struct Mxfp4Matrix {
  static constexpr int64_t kVectors = 8;
  static constexpr int64_t kStep    = kVectors * kLanes;

  const uint8_t* values;
  const uint8_t* scales;
  int64_t depth;                         // a multiple of kMxfp4Block
  int64_t values_stride, scales_stride;  // from one output's to the next's

#if HWY_TARGET == HWY_AVX3
  // A lane is eight nibbles.
  static constexpr int64_t element(int64_t vector, int64_t lane) { return 8 * lane + vector; }
#else
  // Four lanes are a block: low nibbles, then high ones, of its lower 8 bytes, then of its upper 8.
  static constexpr int64_t element(int64_t vector, int64_t lane) {
    const int64_t high = vector / 4, upper = vector / 2 % 2, odd = vector % 2;
    return lane / 4 * kMxfp4Block + 2 * (8 * upper + 2 * (lane % 4) + odd) + high;
  }
#endif

  HWY_INLINE void expand(int64_t output, int64_t k, Floats* w) const {
    uint32_t scale = 0;
    std::memcpy(&scale, scales_at(output, k), kStep / kMxfp4Block);
    look_up(hn::LoadU(Bits(), words_at(output, k)), expand_scales(scale), w);
  }

  HWY_INLINE void expand_last(int64_t output, int64_t k, Floats* w) const {
    const Bits bits;
    uint32_t scale = 0x7f7f7f7f;  // 1 where no block is: nothing times a subnormal is slow too
    for (int64_t b = (depth - k) / kMxfp4Block; b-- > 0;) scale = scale << 8 | scales_at(output, k)[b];
    const auto there = hn::FirstN(bits, static_cast<size_t>(depth - k) / 8);
    look_up(hn::MaskedLoad(there, bits, words_at(output, k)), expand_scales(scale), w);
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

  // For each lane the scale of its block, from the bytes of a step's scales. A byte becomes the exponent of a
  // float, 0 the subnormal 2^-127.
  static HWY_INLINE Floats expand_scales(uint32_t scales) {
    const Lanes d;
    const Bits bits;
    const hn::Repartition<uint8_t, Lanes> bytes;
    // Block b's byte to the top of the lanes of 16 bytes b, zeros below.
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
  static HWY_INLINE void look_up(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
    const Lanes d;
    HWY_ALIGN static constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                    -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const auto values                            = hn::Load(d, kValues);
    // The permutation looks at the low four bits of an index only.
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
  // Two look-ups give the two bytes of each value in bf16, and a bf16 is the upper half of a float.
  static HWY_INLINE void look_up(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
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

// Where element i of a step lies in a prepared row.
template <class Matrix>
struct PreparedOrder {
  int32_t place[Matrix::kStep];

  constexpr PreparedOrder() : place() {
    for (int64_t v = 0; v < Matrix::kVectors; ++v)
      for (int64_t l = 0; l < kLanes; ++l)
        place[Matrix::element(v, l)] = static_cast<int32_t>(v * kLanes + l);
  }
};

// A row in the order of the matrix's weights, zeros behind it: round_up(depth, kStep) floats.
template <class Matrix>
void prepare_row(const float* row, int64_t depth, float* prepared) {
  const auto prepare_step = [&](int64_t k, auto at) {
    for (int64_t v = 0; v < Matrix::kVectors; ++v)
      for (int64_t l = 0; l < kLanes; ++l) prepared[k + v * kLanes + l] = at(k + Matrix::element(v, l));
  };
  int64_t k = 0;
  for (; k + Matrix::kStep <= depth; k += Matrix::kStep) prepare_step(k, [&](int64_t i) { return row[i]; });
  if (k < depth) prepare_step(k, [&](int64_t i) { return i < depth ? row[i] : 0.0f; });
}

// Outputs [begin, end) in bf16, which holds them exactly, as a matrix whose order is that of `matrix`; with
// room for them in `panel`.
HWY_NOINLINE inline Bf16Matrix as_bf16(const Mxfp4Matrix& matrix, int64_t begin, int64_t end, bf16* panel) {
  const Bits bits;
  const int64_t whole = matrix.depth / Mxfp4Matrix::kStep * Mxfp4Matrix::kStep;
  int64_t depth       = 0;
  auto* to            = reinterpret_cast<uint32_t*>(panel);
  for (int64_t n = begin; n < end; ++n)
    for (depth = 0; depth < matrix.depth; depth += Mxfp4Matrix::kStep) {
      Floats w[Mxfp4Matrix::kVectors];
      depth < whole ? matrix.expand(n, depth, w) : matrix.expand_last(n, depth, w);
#pragma GCC unroll 4
      for (int64_t v = 0; v < Mxfp4Matrix::kVectors; v += 2, to += kLanes)
        hn::Store(hn::Or(hn::ShiftRight<16>(hn::BitCast(bits, w[v])), hn::BitCast(bits, w[v + 1])), bits, to);
    }
  return {panel, depth, depth};
}
HWY_INLINE Bf16Matrix as_bf16(const Bf16Matrix& matrix, int64_t begin, int64_t, bf16*) {
  return matrix.from(begin);
}

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_HAVE_TILE
#endif  // FATHOM_KERNELS_WEIGHT_MATRIX
