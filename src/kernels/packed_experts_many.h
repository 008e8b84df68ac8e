// The experts (kernels/experts.h) of many rows, with MXFP4 weights (kernels/packed_weights.h), on rows that
// are sorted by expert (kernels/expert_rows.h).
//
// bytes   of each expert that has a row: 17/32 of its weights, once as long as its rows fit into one item or
//         the L2 cache has the weights for the next
// flops   2 of each weight and row; rows are made in items of 16, 32, 64 or 128, and what an expert lacks to
//         a full one is computed for nothing
// limit   few rows for each expert (T top_k / E below about 50): memory bandwidth; many: the tensor cores
//
// The number of rows of an item follows from T top_k / E, of the extents. A row's results depend on its
// expert's weights and on itself; not on that number, nor on which other rows there are.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/expert_rows.h"
#include "kernels/packed_weights.h"

namespace fathom::kernels {

// The first layer: w1 in RowOrder::gate_pairs, its units activated. sorted [T top_k, H]; a [T top_k, units],
// where units are at least w1.rows / 2, of which those are written. Columns of `sorted` beyond its extent, up
// to w1.depth, count as zeros. Rows are aligned to 16 bytes.
void experts_up_many(View<const bf16, 2> sorted, const ExpertRows& rows, const PackedExperts& w1, float limit,
                     float alpha, View<bf16, 2> a, StreamRef stream);

// The second layer, times the weights [T, top_k] that tokens give their experts: slots(s) for each slot s
// that belongs to an expert. slots [T top_k, H], of w2.rows the first H. Where a has fewer columns than
// w2.depth, the rest counts as zeros.
void experts_down_many(View<const bf16, 2> a, const ExpertRows& rows, View<const float, 2> weights,
                       const PackedExperts& w2, View<float, 2> slots, StreamRef stream);

}  // namespace fathom::kernels
