// x(t, .) = table(tokens(t), .)
//
// bytes   6 H a token: 2 H read (in int8 1.06 H), 4 H written
// limit   memory bandwidth; negligible beside the layers
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/gemm/dense_matrix.h"

namespace fathom::kernels {

// tokens [T], each in [0, V); table [V, H]; x [T, H].
void embedding_reference(View<const int32_t, 1> tokens, const DenseMatrix& table, View<float, 2> x,
                         const Execution& on);

}  // namespace fathom::kernels
