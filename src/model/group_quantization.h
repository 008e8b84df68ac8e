// Weight-only quantization in groups, as GPTQ's and AWQ's checkpoints have it: a code of 2 to 8 bits for each
// weight, a scale and a zero point for each group of consecutive inputs of an output.
//
//   w(n, k) ~ scale(n, k / group) (code(n, k) - zero(n, k / group)) / input_scale(k)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/view.h"

namespace fathom::model {

struct GroupFormat {
  int bits       = 4;
  int64_t group  = 128;    // inputs; the last group of a row may be shorter
  bool symmetric = false;  // the zero point is 2^(bits - 1) everywhere, and need not be stored

  int64_t groups(int64_t columns) const { return (columns + group - 1) / group; }
};

// The numbers that a group's codes stand for.
struct GroupGrid {
  float scale = 1;  // an FP16 number
  int zero    = 0;

  int encode(double weight, int bits) const;  // the nearest number's code
  double decode(int code) const { return static_cast<double>(scale) * (code - zero); }
  double round(double weight, int bits) const { return decode(encode(weight, bits)); }
};

// The grid from the least to the largest of zero and the weights (symmetric: to the largest magnitude, on
// both sides), these limits multiplied by `shrink`. Zero is always one of its numbers.
GroupGrid fit_grid(std::span<const double> weights, const GroupFormat& format, double shrink = 1);

struct QuantizedMatrix {
  GroupFormat format;
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> codes;      // [rows, columns]
  std::vector<GroupGrid> grids;    // [rows, groups]
  std::vector<float> input_scale;  // [columns]; empty: ones

  QuantizedMatrix() = default;
  QuantizedMatrix(const GroupFormat& of, int64_t row_count, int64_t column_count);

  GroupGrid& grid(int64_t row, int64_t group) {
    return grids[static_cast<size_t>(row * format.groups(columns) + group)];
  }
  uint8_t& code(int64_t row, int64_t column) { return codes[static_cast<size_t>(row * columns + column)]; }
  double weight(int64_t row, int64_t column) const;
  // As stored: codes, FP16 scales and, unless symmetric, zero points of as many bits as a code.
  int64_t bits() const;
};

// w: [outputs, inputs]. All quantizers expect finite weights, whose groups FP16 can scale (under 2^16).
QuantizedMatrix round_to_nearest(View<const float, 2> w, const GroupFormat& format);

// The error for the user where a weight is infinite, NaN or 2^16 and above; Ok elsewhere.
Status check_weights(View<const float, 2> w);

}  // namespace fathom::model
