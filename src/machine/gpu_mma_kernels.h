// Tensor-core loops of machine/gpu_ceiling_kernels.h; only builds with CUDA have them.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/stream.h"

namespace fathom::machine {

enum class TileValues { random, zeros };

// Returns the flops it enqueued. bf16, fp16, fp32 (tf32) and fp8_e4m3, accumulated in fp32: wgmma on Hopper,
// mma.sync elsewhere, which is far below the peak of Blackwell's tcgen05. fp64 by mma.sync, from Hopper on.
double gpu_mma(DType type, int64_t steps, TileValues values, void* sink, StreamRef stream);

}  // namespace fathom::machine
