// What the experts found is added to the residual stream, which is then normalised for the matrix that reads
// it: x += sum_k slots(., k, .), y = rmsnorm(x) in bf16 (kernels/rmsnorm.h; the product with the weight is
// rounded once).
//
// bytes   a row: x 8 H, slots 4 top_k H, y 2 H
// limit   DRAM bandwidth; with few rows latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"

namespace fathom::kernels {

// x [T, H], in place; slots [T, top_k, H], or one of no elements: nothing is added; weight [H]; eps > 0;
// y [T, H]. H is a multiple of 4 and at most 3072. A row's bits depend on nothing but the row.
void fold_and_normalize(View<float, 2> x, View<const float, 3> slots, View<const float, 1> weight, float eps,
                        View<bf16, 2> y, StreamRef stream);

// The same of the rows named only, and x stays as it is. rows [R], each in [-1, T), which no kernel of the
// chain writes; y [R, H], zeros where the row is -1 (padding).
void fold_and_normalize_rows(View<const float, 2> x, View<const float, 3> slots, View<const int32_t, 1> rows,
                             View<const float, 1> weight, float eps, View<bf16, 2> y, StreamRef stream);

}  // namespace fathom::kernels
