// Number formats: value types for those that C++ lacks, and a table of all. Cheap to include, in kernels too.
//
// Every conversion from float rounds to nearest, ties to even; every conversion to float is exact.
// Sources: IEEE 754 (binary16), OCP 8-bit Floating Point v1.0 (E4M3, E5M2), OCP Microscaling v1.0 (E2M1,
// E8M0).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/view.h"

namespace fathom {

// The special codes of a format, and the result of encoding a value beyond its largest number.
enum class SpecialCodes {
  // Infinities and NaNs; overflow becomes infinity.
  ieee,
  // The same codes; overflow, and infinity too, becomes the largest number.
  ieee_saturating,
  // All ones is NaN; overflow becomes the largest number.
  nan_only,
  // Every code is a number; overflow becomes the largest number, NaN the largest positive one.
  none,
};

// A binary floating format of at most 16 bits: sign, exponent (biased by half its range), mantissa.
// Formats narrower than a byte use its low bits.
template <int kExponentBits, int kMantissaBits, SpecialCodes kSpecial>
struct Minifloat {
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  using Bits                 = std::conditional_t<(kBits > 8), uint16_t, uint8_t>;

  Bits bits;

  Minifloat() = default;
  FATHOM_HD explicit constexpr Minifloat(float value) : bits(encode(value)) {}

  FATHOM_HD static constexpr Minifloat from_bits(uint32_t bits) {
    Minifloat result;
    result.bits = static_cast<Bits>(bits);
    return result;
  }

  // The largest number of the format.
  FATHOM_HD static constexpr float max() { return static_cast<float>(from_bits(kMaxCode)); }

  FATHOM_HD explicit constexpr operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits >> (kBits - 1) & 1) << 31;
    return __builtin_bit_cast(float, sign | decode_magnitude(bits & kMagnitude));
  }

 private:
  static constexpr bool kIeee = kSpecial == SpecialCodes::ieee || kSpecial == SpecialCodes::ieee_saturating;
  static constexpr int kBias  = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;  // between our mantissa and a float's
  static constexpr uint32_t kMagnitude = (1u << (kBits - 1)) - 1;
  static constexpr uint32_t kInfinity  = ((1u << kExponentBits) - 1) << kMantissaBits;  // where kIeee
  static constexpr uint32_t kMaxCode   = kIeee                                ? kInfinity - 1
                                         : kSpecial == SpecialCodes::nan_only ? kMagnitude - 1
                                                                              : kMagnitude;
  static constexpr uint32_t kOverflow  = kSpecial == SpecialCodes::ieee ? kInfinity : kMaxCode;

  // The float's bits for a code without its sign.
  FATHOM_HD static constexpr uint32_t decode_magnitude(uint32_t code) {
    if constexpr (kExponentBits == 8) return code << kShift;  // the upper part of a float
    if (kIeee && code >= kInfinity) return 0x7f800000 | (code - kInfinity) << kShift;
    if (kSpecial == SpecialCodes::nan_only && code > kMaxCode) return 0x7fc00000;
    if (code >> kMantissaBits != 0) return (code << kShift) + (static_cast<uint32_t>(127 - kBias) << 23);
    constexpr float kStep =
        __builtin_bit_cast(float, static_cast<uint32_t>(128 - kBias - kMantissaBits) << 23);
    return __builtin_bit_cast(uint32_t,
                              static_cast<float>(code) * kStep);  // subnormal here, normal as a float
  }

  // Without branches on the value, so that loops over it vectorise.
  FATHOM_HD static constexpr Bits encode(float value) {
    const uint32_t word      = __builtin_bit_cast(uint32_t, value);
    const uint32_t sign      = word >> 31 << (kBits - 1);
    const uint32_t magnitude = word & 0x7fffffff;

    // magnitude = significand * 2^(exponent - 150). Rounding to this format drops `shift` bits of the
    // significand, more of them below the format's smallest normal; with 25 or more the result is always
    // zero.
    const int field            = static_cast<int>(magnitude >> 23);
    const uint32_t significand = (magnitude & 0x7fffff) | (field == 0 ? 0u : 0x800000u);
    const int exponent         = field == 0 ? 1 : field;
    constexpr int kMinExponent = 128 - kBias;  // of the format's smallest normal, with a float's bias
    const int missing          = exponent < kMinExponent ? kMinExponent - exponent : 0;
    const int shift            = kShift + missing > 25 ? 25 : kShift + missing;
    const uint32_t half        = (1u << (shift - 1)) - 1 + (significand >> shift & 1);
    const uint32_t rounded     = (significand + half) >> shift;

    // The hidden bit of a normal adds one to the exponent, and so does a carry out of the mantissa.
    const int above     = exponent < kMinExponent ? 0 : exponent - kMinExponent;
    const uint32_t code = (static_cast<uint32_t>(above) << kMantissaBits) + rounded;

    const bool is_nan     = magnitude > 0x7f800000;
    const uint32_t finite = sign | (code > kMaxCode ? kOverflow : code);
    return static_cast<Bits>(is_nan ? encode_nan(sign, magnitude) : finite);
  }

  // A quiet NaN with the sign and as many upper payload bits as the format holds.
  FATHOM_HD static constexpr uint32_t encode_nan(uint32_t sign, uint32_t magnitude) {
    if constexpr (kSpecial == SpecialCodes::none) return kMaxCode;
    if constexpr (kSpecial == SpecialCodes::nan_only) return sign | kMagnitude;
    return sign | kInfinity | 1u << (kMantissaBits - 1) | (magnitude & 0x7fffff) >> kShift;
  }
};

using bf16     = Minifloat<8, 7, SpecialCodes::ieee>;
using fp16     = Minifloat<5, 10, SpecialCodes::ieee>;
using fp8_e5m2 = Minifloat<5, 2, SpecialCodes::ieee_saturating>;
using fp8_e4m3 = Minifloat<4, 3, SpecialCodes::nan_only>;
using fp4_e2m1 = Minifloat<2, 1, SpecialCodes::none>;

// The scale of an MX block: a power of two, 2^(bits - 127); bits 255 is NaN. Unlike the other formats it
// rounds towards zero, to 2^floor(log2(value)), and saturates at both ends. Zero becomes the smallest power,
// a negative value NaN.
struct e8m0 {
  uint8_t bits;

  e8m0() = default;
  FATHOM_HD explicit constexpr e8m0(float value) : bits(encode(value)) {}

  FATHOM_HD static constexpr e8m0 from_bits(uint32_t bits) {
    e8m0 result;
    result.bits = static_cast<uint8_t>(bits);
    return result;
  }

  FATHOM_HD explicit constexpr operator float() const {
    const uint32_t word = bits == 0     ? 0x00400000
                          : bits == 255 ? 0x7fc00000
                                        : static_cast<uint32_t>(bits) << 23;
    return __builtin_bit_cast(float, word);
  }

 private:
  FATHOM_HD static constexpr uint8_t encode(float value) {
    if (!(value >= 0)) return 255;
    const uint32_t exponent = __builtin_bit_cast(uint32_t, value) >> 23 & 0xff;
    return static_cast<uint8_t>(exponent > 254 ? 254 : exponent);
  }
};

enum class DType : uint8_t {
  fp64,
  fp32,
  bf16,
  fp16,
  fp8_e5m2,
  fp8_e4m3,
  fp4_e2m1,
  e8m0,
  int64,
  int32,
  uint32,
  int8,
  uint8,
};

struct DTypeTraits {
  const char* name;
  int bits;
  // Unit round-off u: the largest relative error of rounding in the normal range; 0 for integers.
  double round_off;
};

// In the order of DType.
inline constexpr DTypeTraits kDTypes[] = {
    {"fp64", 64, 0x1p-53},   {"fp32", 32, 0x1p-24},   {"bf16", 16, 0x1p-8},    {"fp16", 16, 0x1p-11},
    {"fp8_e5m2", 8, 0x1p-3}, {"fp8_e4m3", 8, 0x1p-4}, {"fp4_e2m1", 4, 0x1p-2}, {"e8m0", 8, 0x1p-1},
    {"int64", 64, 0},        {"int32", 32, 0},        {"uint32", 32, 0},       {"int8", 8, 0},
    {"uint8", 8, 0},
};

constexpr const DTypeTraits& traits(DType type) { return kDTypes[static_cast<int>(type)]; }

// dtype_of<T>: the DType of a C++ type, const or not. Other types do not compile.
template <class T>
struct HasNoDType;
template <class T>
inline constexpr DType dtype_of = HasNoDType<T>::value;
template <class T>
inline constexpr DType dtype_of<const T> = dtype_of<T>;
template <>
inline constexpr DType dtype_of<double> = DType::fp64;
template <>
inline constexpr DType dtype_of<float> = DType::fp32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<fp16> = DType::fp16;
template <>
inline constexpr DType dtype_of<fp8_e5m2> = DType::fp8_e5m2;
template <>
inline constexpr DType dtype_of<fp8_e4m3> = DType::fp8_e4m3;
template <>
inline constexpr DType dtype_of<fp4_e2m1> = DType::fp4_e2m1;
template <>
inline constexpr DType dtype_of<e8m0> = DType::e8m0;
template <>
inline constexpr DType dtype_of<int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<uint32_t> = DType::uint32;
template <>
inline constexpr DType dtype_of<int8_t> = DType::int8;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::uint8;

}  // namespace fathom
