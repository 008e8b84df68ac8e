// Rotary embedding (RoPE), with the two halves of a head as real and imaginary parts (NeoX's order):
//   x(k)        <- x(k) cos - x(k + Dh/2) sin
//   x(k + Dh/2) <- x(k + Dh/2) cos + x(k) sin         k < Dh/2, angle = position * frequency(k)
//
// YaRN's concentration scales cos and sin, so that one row of the table serves the queries and keys of every
// layer.
//
// limit   cache bandwidth: the rows have just been written
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"

namespace fathom::kernels {

// positions [T]; frequencies [Dh/2], radians a position; table [T, Dh]: cosines, then sines. Angles are fp32
// products, as in every implementation of the model: at position 1e5 another precision gives other angles.
void rope_table_reference(View<const int32_t, 1> positions, View<const float, 1> frequencies,
                          float concentration, View<float, 2> table, const Execution& on);

// x [T, heads, Dh], in place.
void rope_reference(View<float, 3> x, View<const float, 2> table, const Execution& on);
void rope_cpu(View<float, 3> x, View<const float, 2> table, const Execution& on);

}  // namespace fathom::kernels
