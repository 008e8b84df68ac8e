// CUTLASS as a yardstick. Its headers are not part of the repository, and its kernel takes a minute and a
// half to compile: it is built where the option FATHOM_CUTLASS_DIR says where they are.
#pragma once

#include <functional>

#include "experiments/labs/matmul/gemm.h"

namespace fathom::lab::matmul {

// Null in a build without CUTLASS.
[[gnu::weak]] void cutlass_gemm(const Gemm&, StreamRef);

// cutlass_gemm, or a typed skip where it was not built.
FATHOM_CUDA_LAUNCHER std::function<void(const Gemm&, StreamRef)> cutlass(const Gemm&, StreamRef);

}  // namespace fathom::lab::matmul
