// A variant that window_attention_gpu measures too: online softmax in registers, mma.sync.
#pragma once

#include "attention.h"

namespace fathom::lab::flash_attention_gpu {

FATHOM_CUDA_LAUNCHER void flash(const PromptAttention& p, StreamRef stream);

}  // namespace fathom::lab::flash_attention_gpu
