// The rungs of the ladder, in its order: each is the one before and one idea more.
#pragma once

#include "experiments/labs/matmul/gemm.h"

namespace fathom::lab::matmul {

// On the CUDA cores.
FATHOM_CUDA_LAUNCHER void naive(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void coalesced(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void shared_tile(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void register_tile(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void vectors(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void warp_tile(const Gemm&, StreamRef);

// On the tensor cores by mma.sync.
FATHOM_CUDA_LAUNCHER void mma_sync(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void cp_async(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void tma(const Gemm&, StreamRef);

// By wgmma.
FATHOM_CUDA_LAUNCHER void wgmma(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void warp_specialized(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void wide_tile(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void persistent(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void tma_store(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void ping_pong(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void cluster(const Gemm&, StreamRef);
FATHOM_CUDA_LAUNCHER void full_waves(const Gemm&, StreamRef);

// On Blackwell.
FATHOM_CUDA_LAUNCHER void tcgen05(const Gemm&, StreamRef);

}  // namespace fathom::lab::matmul
