#pragma once

#include "experiments/labs/matmul/gemm_fp32.h"

namespace fathom::lab::matmul {

FATHOM_CUDA_LAUNCHER void tf32_cluster(const GemmTf32&, StreamRef);

}  // namespace fathom::lab::matmul
