// The rungs of the ladder, in its order.
#pragma once

#include <functional>

#include "experiments/labs/matmul/gemm_fp32.h"

namespace fathom::lab::matmul {

FATHOM_CUDA_LAUNCHER void fp32_shared_tile(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_warp_tile(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_tma(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_wide_tile(const GemmFp32&, StreamRef);

// Takes memory for the transposed matrices; the returned call is timed, with the transposing.
using Fp32Call = std::function<void(const GemmFp32&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Fp32Call fp32_transposed(const GemmFp32&, StreamRef);

}  // namespace fathom::lab::matmul
