// Binary floating formats of up to 32 bits, and sums in them. The model of the book's float explorer;
// freestanding, for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

// What stands above the largest number: infinity and NaNs (IEEE), the same but overflow stops at the largest
// number (OCP's E5M2, saturating), or one NaN only (OCP's E4M3), where overflow stops too.
enum class Overflow : int32_t { to_infinity, saturating, saturating_nan_only };

struct FloatFormat {
  int32_t exponent_bits;
  int32_t mantissa_bits;
  Overflow overflow;
};

inline constexpr FloatFormat kFp32{8, 23, Overflow::to_infinity};
inline constexpr FloatFormat kFp16{5, 10, Overflow::to_infinity};
inline constexpr FloatFormat kBf16{8, 7, Overflow::to_infinity};
inline constexpr FloatFormat kE4m3{4, 3, Overflow::saturating_nan_only};
inline constexpr FloatFormat kE5m2{5, 2, Overflow::saturating};

enum class Rounding : int32_t { nearest_even, toward_zero };

uint32_t encode(const FloatFormat& format, double value, Rounding rounding);
double decode(const FloatFormat& format, uint32_t bits);
double round_to(const FloatFormat& format, double value, Rounding rounding);

enum class SumOrder : int32_t { forward, backward, pairwise };
enum class Terms : int32_t { ones, harmonic, alternating };  // 1; 1/k; 1/k with signs in turn

// The sum of terms 1 to n, each rounded to the format and each addition too.
double sum_in(const FloatFormat& format, Rounding rounding, Terms terms, SumOrder order, int32_t n);

// The same in double precision, from the smallest terms on.
double sum_in_double(Terms terms, int32_t n);

}  // namespace fathom::book
