#include "book/float_model.h"

namespace fathom::book {
namespace {

int32_t bias(const FloatFormat& format) { return (1 << (format.exponent_bits - 1)) - 1; }

uint32_t sign_bit(const FloatFormat& format) { return 1u << (format.exponent_bits + format.mantissa_bits); }

uint32_t infinity_code(const FloatFormat& format) {
  return ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
}

uint32_t largest_code(const FloatFormat& format) {
  return format.overflow == Overflow::saturating_nan_only ? sign_bit(format) - 2 : infinity_code(format) - 1;
}

// 2^exponent, for the exponents of normal doubles.
double power_of_two(int32_t exponent) {
  return __builtin_bit_cast(double, static_cast<uint64_t>(exponent + 1023) << 52);
}

double term(const FloatFormat& format, Rounding rounding, Terms terms, int32_t k) {
  if (terms == Terms::ones) return 1;
  const double size = round_to(format, 1.0 / k, rounding);
  return terms == Terms::alternating && k % 2 == 0 ? -size : size;
}

// The sum of terms [begin, end) by halves.
double pairwise(const FloatFormat& format, Rounding rounding, Terms terms, int32_t begin, int32_t end) {
  if (end - begin == 1) return term(format, rounding, terms, begin);
  const int32_t middle = begin + (end - begin) / 2;
  return round_to(
      format,
      pairwise(format, rounding, terms, begin, middle) + pairwise(format, rounding, terms, middle, end),
      rounding);
}

}  // namespace

uint32_t encode(const FloatFormat& format, double value, Rounding rounding) {
  const uint64_t word = __builtin_bit_cast(uint64_t, value);
  const uint32_t sign = word >> 63 ? sign_bit(format) : 0;
  const uint32_t nan  = format.overflow == Overflow::saturating_nan_only
                            ? sign_bit(format) - 1
                            : infinity_code(format) | 1u << (format.mantissa_bits - 1);
  if (value != value) return sign | nan;

  const double size = value < 0 ? -value : value;
  const uint32_t overflow =
      format.overflow == Overflow::to_infinity ? infinity_code(format) : largest_code(format);
  const int32_t field = static_cast<int32_t>(word >> 52 & 0x7ff);
  if (field == 0x7ff) return sign | overflow;

  // The value in units of the last place; below the smallest normal that unit no longer shrinks.
  const int32_t smallest = 1 - bias(format);
  const int32_t exponent = field - 1023 < smallest ? smallest : field - 1023;
  const double units     = size * power_of_two(format.mantissa_bits - exponent);
  if (exponent > bias(format) + 1)
    return sign | (rounding == Rounding::toward_zero ? largest_code(format) : overflow);
  uint32_t whole    = static_cast<uint32_t>(units);
  const double rest = units - whole;
  if (rounding == Rounding::nearest_even && (rest > 0.5 || (rest == 0.5 && whole & 1))) ++whole;
  // The hidden bit adds one to the exponent, and so does a carry out of the mantissa.
  const uint32_t code = (static_cast<uint32_t>(exponent - smallest) << format.mantissa_bits) + whole;
  if (code <= largest_code(format)) return sign | code;
  return sign | (rounding == Rounding::toward_zero ? largest_code(format) : overflow);
}

double decode(const FloatFormat& format, uint32_t bits) {
  const uint32_t code = bits & (sign_bit(format) - 1);
  const double sign   = bits & sign_bit(format) ? -1 : 1;
  if (code > largest_code(format))
    return format.overflow != Overflow::saturating_nan_only && code == infinity_code(format)
               ? sign * __builtin_inf()
               : __builtin_nan("");
  const int32_t field     = static_cast<int32_t>(code >> format.mantissa_bits);
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const uint32_t hidden   = field == 0 ? 0 : 1u << format.mantissa_bits;
  const int32_t exponent  = (field == 0 ? 1 : field) - bias(format);
  return sign * (mantissa | hidden) * power_of_two(exponent - format.mantissa_bits);
}

double round_to(const FloatFormat& format, double value, Rounding rounding) {
  return decode(format, encode(format, value, rounding));
}

// A double has more than twice the bits of these formats and two more, so rounding its sum or quotient to a
// format gives what one rounding would.
double sum_in(const FloatFormat& format, Rounding rounding, Terms terms, SumOrder order, int32_t n) {
  if (n <= 0) return 0;
  if (order == SumOrder::pairwise) return pairwise(format, rounding, terms, 1, n + 1);
  double sum = 0;
  for (int32_t i = 1; i <= n; ++i) {
    const int32_t k = order == SumOrder::forward ? i : n + 1 - i;
    sum             = round_to(format, sum + term(format, rounding, terms, k), rounding);
  }
  return sum;
}

double sum_in_double(Terms terms, int32_t n) {
  double sum = 0;
  for (int32_t k = n; k >= 1; --k) {
    const double size = terms == Terms::ones ? 1 : 1.0 / k;
    sum += terms == Terms::alternating && k % 2 == 0 ? -size : size;
  }
  return sum;
}

}  // namespace fathom::book
