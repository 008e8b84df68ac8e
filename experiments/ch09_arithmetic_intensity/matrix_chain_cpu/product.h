// out = A B for row-major matrices: rows of B, each times a number of A, are added to a row of out. The
// compiler makes vectors of the inner loop, which is as long as a row of B.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/view.h"

namespace fathom::lab::matrix_chain_cpu {

inline void product(View<const float, 2> a, View<const float, 2> b, View<float, 2> out) {
  const int64_t columns = b.extent(1);
  for (int64_t i = 0; i < a.extent(0); ++i) {
    float* __restrict row = &out(i, 0);
    std::fill_n(row, columns, 0.0f);
    for (int64_t k = 0; k < a.extent(1); ++k) {
      const float factor           = a(i, k);
      const float* __restrict from = &b(k, 0);
      for (int64_t j = 0; j < columns; ++j) row[j] += factor * from[j];
    }
  }
}

}  // namespace fathom::lab::matrix_chain_cpu
