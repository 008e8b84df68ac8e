// The library's attention.
#pragma once

#include "attention.h"

namespace fathom::lab::flash_attention_gpu {

// Opens cuDNN and builds a plan for this prompt's length; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const PromptAttention&, StreamRef)> cudnn_attention(
    const PromptAttention&, StreamRef);

}  // namespace fathom::lab::flash_attention_gpu
