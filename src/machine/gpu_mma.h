// Tensor-core loops of machine/gpu_kernels.h; only builds with CUDA have them.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"

namespace fathom::machine {

enum class TileValues { random, zeros };

// Flops enqueued. bf16, fp16, fp32 (tf32) and fp8_e4m3, accumulated in fp32: wgmma on Hopper, mma.sync
// elsewhere, which is far from the peak of Blackwell's tcgen05. fp64 by mma.sync, from Hopper on.
double gpu_mma(DType type, int64_t steps, TileValues values, void* sink, StreamRef stream);

}  // namespace fathom::machine
