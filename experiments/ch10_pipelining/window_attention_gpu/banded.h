// The baseline.
#pragma once

#include "experiments/ch10_pipelining/flash_attention_gpu/attention.h"

namespace fathom::lab::window_attention_gpu {

inline constexpr int kMaxWindow = 128;

// Windows of 1 to kMaxWindow.
FATHOM_CUDA_LAUNCHER void banded(const flash_attention_gpu::PromptAttention& p, StreamRef stream);

}  // namespace fathom::lab::window_attention_gpu
