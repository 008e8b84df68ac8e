// Packs a checkpoint's bf16 matrices into the layout of kernels/gemm/packed_weights.h, once, when a model is
// loaded. MXFP4 experts: kernels/moe/pack_experts.h. All pointers are to the device.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// w [rows, columns], with any strides, becomes tiles of packed_rows x packed_depth; padding becomes zero.
// row_head_dim is for rotary_pairs only; column_head_dim is 0 unless the columns are those of heads.
void pack_matrix(View<const bf16, 2> w, RowOrder order, int64_t row_head_dim, int64_t column_head_dim,
                 bf16* tiles, StreamRef stream);
// bias [E, rows] of E matrices becomes out [E, padded_rows].
void pack_bias(View<const bf16, 2> bias, RowOrder order, int64_t head_dim, int64_t padded_rows, float* out,
               StreamRef stream);

}  // namespace fathom::kernels
