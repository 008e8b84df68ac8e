// The matrices of attention and of the (un)embedding: in bf16, or in int8 with a bf16 scale for each group of
// 32 columns (core/int8_group.h).
#pragma once

#include <cstdint>
#include <variant>

#include "core/dtype.h"
#include "core/int8_group.h"
#include "core/view.h"

namespace fathom::kernels {

enum class Output { overwrite, add };  // what a product does with y

struct Int8Weights {
  View<const int8_t, 2> values;  // [N, K], rows contiguous
  View<const bf16, 2> scales;    // [N, ceil(K / 32)], rows contiguous
};

using DenseMatrix = std::variant<View<const bf16, 2>, Int8Weights>;

inline int64_t rows_of(const DenseMatrix& w) {
  const auto* plain = std::get_if<View<const bf16, 2>>(&w);
  return plain ? plain->extent(0) : std::get<Int8Weights>(w).values.extent(0);
}
inline int64_t columns_of(const DenseMatrix& w) {
  const auto* plain = std::get_if<View<const bf16, 2>>(&w);
  return plain ? plain->extent(1) : std::get<Int8Weights>(w).values.extent(1);
}

// One weight, exactly.
inline float weight_at(const View<const bf16, 2>& w, int64_t row, int64_t column) {
  return static_cast<float>(w(row, column));
}
inline float weight_at(const Int8Weights& w, int64_t row, int64_t column) {
  return static_cast<float>(w.values(row, column)) * static_cast<float>(w.scales(row, column / kInt8Group));
}

// Whether rows are contiguous, and an int8 matrix has a scale for each group.
inline bool well_formed(const View<const bf16, 2>& w) { return w.extent(1) <= 1 || w.stride(1) == 1; }
inline bool well_formed(const Int8Weights& w) {
  const int64_t groups = int8_groups(w.values.extent(1));
  return (w.values.extent(1) <= 1 || w.values.stride(1) == 1) && (groups <= 1 || w.scales.stride(1) == 1) &&
         w.scales.extent(0) == w.values.extent(0) && w.scales.extent(1) == groups;
}

}  // namespace fathom::kernels
