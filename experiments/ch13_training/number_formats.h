// The formats of kernels/quant/formats.h that experiments of this chapter compare, by the names that their
// axes have.
#pragma once

#include "core/expect.h"
#include "kernels/quant/formats.h"

namespace fathom::lab {

enum class NumberFormat {
  e4m3_tensor,
  e5m2_tensor,
  e4m3_row,
  int8_row,
  e4m3_block,
  int8_block,
  mxfp8,
  mxfp4,
  nvfp4,
};
inline constexpr const char* kNumberFormatNames[] = {"e4m3_tensor", "e5m2_tensor", "e4m3_row",
                                                     "int8_row",    "e4m3_block",  "int8_block",
                                                     "mxfp8",       "mxfp4",       "nvfp4"};

// A template, for sources that do without <string>.
template <class Text>
NumberFormat number_format(const Text& name) {
  int found = -1, i = 0;
  for (const char* known : kNumberFormatNames) {
    if (name == known) found = i;
    ++i;
  }
  FATHOM_EXPECT(found >= 0, "no number format of this chapter (kNumberFormatNames) has the name " + name);
  return static_cast<NumberFormat>(found);
}

// Calls f.operator()<Format>() with the type of a format.
template <class F>
decltype(auto) with_format(NumberFormat format, F&& f) {
  switch (format) {
    case NumberFormat::e4m3_tensor:
      return f.template operator()<kernels::TensorScaled<fp8_e4m3>>();
    case NumberFormat::e5m2_tensor:
      return f.template operator()<kernels::TensorScaled<fp8_e5m2>>();
    case NumberFormat::e4m3_row:
      return f.template operator()<kernels::RowScaled<fp8_e4m3>>();
    case NumberFormat::int8_row:
      return f.template operator()<kernels::RowScaled<int8_t>>();
    case NumberFormat::e4m3_block:
      return f.template operator()<kernels::BlockScaled<fp8_e4m3>>();
    case NumberFormat::int8_block:
      return f.template operator()<kernels::BlockScaled<int8_t>>();
    case NumberFormat::mxfp8:
      return f.template operator()<kernels::Mxfp8>();
    case NumberFormat::mxfp4:
      return f.template operator()<kernels::Mxfp4>();
    case NumberFormat::nvfp4:
      break;
  }
  return f.template operator()<kernels::Nvfp4>();
}

}  // namespace fathom::lab
