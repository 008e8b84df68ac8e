// The rungs of the ladder, in its order.
#pragma once

#include "experiments/labs/matmul/gemm_fp32.h"

namespace fathom::lab::matmul {

FATHOM_CUDA_LAUNCHER void fp32_shared_tile(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_warp_tile(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_tma(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER void fp32_wide_tile(const GemmFp32&, StreamRef);

}  // namespace fathom::lab::matmul
