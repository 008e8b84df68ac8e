// Who computes which part of a product: one kernel (split_tile.cuh), four schedules.
#pragma once

#include "experiments/labs/matmul/gemm.h"

namespace fathom::lab::matmul {

FATHOM_CUDA_LAUNCHER void data_parallel(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void split_k(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void stream_k(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void one_tile_stream_k(const Gemm&, StreamRef);

}  // namespace fathom::lab::matmul
