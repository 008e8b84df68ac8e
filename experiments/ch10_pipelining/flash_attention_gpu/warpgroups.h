// A variant that window_attention_gpu measures too: the engine's op.
#pragma once

#include "attention.h"

namespace fathom::lab::flash_attention_gpu {

FATHOM_CUDA_LAUNCHER void warpgroups(const PromptAttention& p, StreamRef stream);

}  // namespace fathom::lab::flash_attention_gpu
