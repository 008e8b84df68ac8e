// The experts (kernels/moe/experts.h) for many rows, with packed MXFP4 weights
// (kernels/gemm/packed_weights.h), on rows that are sorted by expert (kernels/moe/permute.h): a grouped GEMM.
//
// bytes   of each expert that has a row: 17/32 of its number of weights, once as long as its rows fit into
//         one work tile or the L2 cache keeps the weights for the next one
// flops   2 for each weight and row. Work tiles have 16, 32, 64 or 128 rows. The missing rows of an expert's
//         last tile are computed for nothing; of tiles of 128 rows, at most 31
// limit   few rows for each expert (T top_k / E below about 50): memory bandwidth; many: the tensor cores
//
// The number of rows of a work tile follows from T top_k / E. A row's results depend on its expert's weights
// and on the row itself; not on the work tile, nor on the other rows.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"
#include "kernels/moe/expert_rows.h"

namespace fathom::kernels {

// The first layer with SwiGLU. w1 is in RowOrder::gate_pairs. sorted [T top_k, H]; missing columns up to
// w1.depth count as zeros. a [T top_k, units] with units >= w1.rows / 2, of which w1.rows / 2 are written.
// Rows are aligned to 16 bytes.
void experts_up_grouped_gemm(View<const bf16, 2> sorted, const ExpertRows& rows, const PackedExperts& w1,
                             float limit, float alpha, View<bf16, 2> a, StreamRef stream);

// The second layer, times the router's weights [T, top_k]: expert_outputs(r) for each expert row r that is
// not padding. expert_outputs [T top_k, H]: the first H of w2.rows. Missing columns of `a` up to w2.depth
// count as zeros.
void experts_down_grouped_gemm(View<const bf16, 2> a, const ExpertRows& rows, View<const float, 2> weights,
                               const PackedExperts& w2, View<float, 2> expert_outputs, StreamRef stream);

}  // namespace fathom::kernels
