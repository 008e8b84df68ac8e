// Cosines and sines of a step's positions on a GPU, which the queries and keys of every layer share
// (kernels/attention/rope.h).
//
// bytes   a token: 4 read, 256 written
// limit   latency
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// table [T, 64]: 32 cosines, then 32 sines, times the concentration. positions [T], which no kernel of the
// chain of dependent launches writes (cuda/launch.cuh); frequencies [32], radians a position, zeros behind
// those of a smaller head. Angles are fp32 products of magnitude below 2^20. A negative position (padding)
// gives some finite angle.
void rope_table(View<const int32_t, 1> positions, View<const float, 1> frequencies, float concentration,
                View<float, 2> table, StreamRef stream);

inline Cost rope_table_cost(int64_t rows) {
  return {.read = 4.0 * static_cast<double>(rows + 32), .written = 256.0 * static_cast<double>(rows)};
}

}  // namespace fathom::kernels
