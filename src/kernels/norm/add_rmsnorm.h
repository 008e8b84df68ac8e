// Adds the expert outputs to the residual stream and normalises it for the matrix that reads it:
//   x += sum_k expert_outputs(., k, .),  y = rmsnorm(x) in bf16 (kernels/norm/rmsnorm.h)
// The product with the norm's weight is rounded once.
//
// bytes   a row: x 8 H, expert_outputs 4 top_k H, y 2 H
// limit   DRAM bandwidth; with few rows latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// x [T, H], in place; expert_outputs [T, top_k, H], or empty: nothing is added and x stays as it is; weight
// [H]; eps > 0; y [T, H]. H is a multiple of 4 and at most 3072. A row's bits depend on nothing but the row.
void add_rmsnorm(View<float, 2> x, View<const float, 3> expert_outputs, View<const float, 1> weight,
                 float eps, View<bf16, 2> y, StreamRef stream);

// The same for the given rows only, without storing x. rows [R], each in [-1, T), which no kernel of the
// chain of dependent launches writes (cuda/launch.cuh); y [R, H], zeros where the row is -1 (padding).
void add_rmsnorm_rows(View<const float, 2> x, View<const float, 3> expert_outputs,
                      View<const int32_t, 1> rows, View<const float, 1> weight, float eps, View<bf16, 2> y,
                      StreamRef stream);

// top_k 0: nothing is added, and x is not stored.
inline Cost add_rmsnorm_cost(int64_t rows, int64_t hidden, int64_t top_k) {
  const double numbers = static_cast<double>(rows) * static_cast<double>(hidden);
  const auto K         = static_cast<double>(top_k);
  return {.read    = 4 * numbers * (1 + K) + 4 * static_cast<double>(hidden),
          .written = numbers * (top_k > 0 ? 6 : 2),
          .flops   = numbers * (K + 4)};
}
inline Cost add_rmsnorm_rows_cost(int64_t rows, int64_t hidden, int64_t top_k) {
  Cost cost    = add_rmsnorm_cost(rows, hidden, top_k);
  cost.written = 2.0 * static_cast<double>(rows) * static_cast<double>(hidden);  // y alone
  cost.read += 4.0 * static_cast<double>(rows);
  return cost;
}

}  // namespace fathom::kernels
