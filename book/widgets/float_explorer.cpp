// What float_explorer.js calls.
#include "book/float_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

// In the order of the page's FORMATS.
FloatFormat format_of(int32_t index) {
  switch (index) {
    case 0:
      return kFp32;
    case 1:
      return kFp16;
    case 2:
      return kBf16;
    case 3:
      return kE4m3;
    default:
      return kE5m2;
  }
}

}  // namespace

WASM_EXPORT(exponent_bits) int32_t exponent_bits(int32_t format) { return format_of(format).exponent_bits; }
WASM_EXPORT(mantissa_bits) int32_t mantissa_bits(int32_t format) { return format_of(format).mantissa_bits; }

WASM_EXPORT(bits_of) uint32_t bits_of(int32_t format, double value, int32_t rounding) {
  return encode(format_of(format), value, static_cast<Rounding>(rounding));
}

WASM_EXPORT(value_of) double value_of(int32_t format, uint32_t bits) {
  return decode(format_of(format), bits);
}

WASM_EXPORT(sum_of) double sum_of(int32_t format, int32_t rounding, int32_t terms, int32_t order, int32_t n) {
  return sum_in(format_of(format), static_cast<Rounding>(rounding), static_cast<Terms>(terms),
                static_cast<SumOrder>(order), n);
}

WASM_EXPORT(exact_sum) double exact_sum(int32_t terms, int32_t n) {
  return sum_in_double(static_cast<Terms>(terms), n);
}
