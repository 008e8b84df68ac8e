#include "model/group_quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/expect.h"

namespace fathom::model {

int GroupGrid::encode(double weight, int bits) const {
  const double code = std::nearbyint(weight / static_cast<double>(scale)) + zero;
  return static_cast<int>(std::clamp(code, 0.0, static_cast<double>((1 << bits) - 1)));
}

GroupGrid fit_grid(std::span<const double> weights, const GroupFormat& format, double shrink) {
  double least = 0, largest = 0;
  for (const double w : weights) least = std::min(least, w), largest = std::max(largest, w);
  if (format.symmetric) {
    largest = std::max(largest, -least);
    least   = -largest;
  }
  const int steps   = (1 << format.bits) - 1;
  const double step = std::min((largest - least) * shrink / steps, static_cast<double>(fp16::max()));
  const float scale = static_cast<float>(fp16(static_cast<float>(step)));
  GroupGrid grid{.zero = format.symmetric ? (steps + 1) / 2 : 0};
  if (scale == 0) return grid;  // all weights are zero, or so small that FP16 has no scale for them
  grid.scale = scale;
  if (!format.symmetric)
    grid.zero =
        std::clamp(static_cast<int>(std::lround(-least * shrink / static_cast<double>(scale))), 0, steps);
  return grid;
}

QuantizedMatrix::QuantizedMatrix(const GroupFormat& of, int64_t row_count, int64_t column_count)
    : format(of), rows(row_count), columns(column_count) {
  FATHOM_EXPECT(of.bits >= 2 && of.bits <= 8 && of.group >= 1, "codes have 2 to 8 bits, groups an input");
  codes.resize(static_cast<size_t>(rows * columns));
  grids.resize(static_cast<size_t>(rows * format.groups(columns)));
}

double QuantizedMatrix::weight(int64_t row, int64_t column) const {
  const GroupGrid& grid = grids[static_cast<size_t>(row * format.groups(columns) + column / format.group)];
  const double w        = grid.decode(codes[static_cast<size_t>(row * columns + column)]);
  return input_scale.empty() ? w : w / static_cast<double>(input_scale[static_cast<size_t>(column)]);
}

int64_t QuantizedMatrix::bits() const {
  const int64_t of_group = 16 + (format.symmetric ? 0 : format.bits);
  return static_cast<int64_t>(codes.size()) * format.bits + static_cast<int64_t>(grids.size()) * of_group +
         static_cast<int64_t>(input_scale.size()) * 16;
}

QuantizedMatrix round_to_nearest(View<const float, 2> w, const GroupFormat& format) {
  QuantizedMatrix quantized(format, w.extent(0), w.extent(1));
  std::vector<double> group;
  for (int64_t n = 0; n < quantized.rows; ++n)
    for (int64_t first = 0; first < quantized.columns; first += format.group) {
      group.clear();
      for (int64_t k = first; k < std::min(first + format.group, quantized.columns); ++k)
        group.push_back(w(n, k));
      const GroupGrid grid                    = fit_grid(group, format);
      quantized.grid(n, first / format.group) = grid;
      for (size_t i = 0; i < group.size(); ++i)
        quantized.code(n, first + static_cast<int64_t>(i)) =
            static_cast<uint8_t>(grid.encode(group[i], format.bits));
    }
  return quantized;
}

Status check_weights(View<const float, 2> w) {
  for (int64_t n = 0; n < w.extent(0); ++n)
    for (int64_t k = 0; k < w.extent(1); ++k)
      if (!(std::abs(w(n, k)) < 65536.0f))
        return Error{
            fmt::format("the weight of output {}, input {} is {}: no FP16 scale reaches it, fetch the "
                        "checkpoint again or train it longer",
                        n, k, w(n, k))};
  return Ok{};
}

}  // namespace fathom::model
