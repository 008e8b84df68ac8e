// The yardsticks. Not in gemm.h, because <functional> costs every kernel file a second of compile time.
#pragma once

#include <functional>

#include "experiments/labs/matmul/gemm.h"

namespace fathom::lab::matmul {

using Call = std::function<void(const Gemm&, StreamRef)>;
// cuBLASLt with the algorithm that its heuristic puts first, and with the fastest of all that it offers for
// the shape, found by trial.
FATHOM_CUDA_LAUNCHER Call cublaslt(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER Call cublaslt_fastest(const Gemm&, StreamRef);

}  // namespace fathom::lab::matmul
