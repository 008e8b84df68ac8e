// The yardsticks. Not in gemm.h, because <functional> costs every kernel file a second of compile time.
#pragma once

#include <functional>

#include "experiments/labs/matmul/gemm.h"
#include "experiments/labs/matmul/gemm_fp32.h"
#include "experiments/labs/matmul/gemm_fp8.h"

namespace fathom::lab::matmul {

template <class P>
using Call = std::function<void(const P&, StreamRef)>;

// cuBLASLt with the algorithm that its heuristic puts first, and with the fastest of all that it offers for
// the shape, found by trial. Of e4m3 with one scale for each tensor.
FATHOM_CUDA_LAUNCHER Call<Gemm> cublaslt(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<Gemm> cublaslt_fastest(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmFp32> cublaslt(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmFp32> cublaslt_fastest(const GemmFp32&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmTf32> cublaslt(const GemmTf32&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmTf32> cublaslt_fastest(const GemmTf32&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmFp8> cublaslt(const GemmFp8&, StreamRef);
FATHOM_CUDA_LAUNCHER Call<GemmFp8> cublaslt_fastest(const GemmFp8&, StreamRef);
// The fastest with scales of blocks.
FATHOM_CUDA_LAUNCHER Call<GemmFp8> cublaslt_block_scales(const GemmFp8&, StreamRef);

}  // namespace fathom::lab::matmul
