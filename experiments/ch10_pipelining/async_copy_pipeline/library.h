// The library variant. Not in lora_shrink.h, because <functional> costs every kernel file a second.
#pragma once

#include <functional>

#include "lora_shrink.h"

namespace fathom::lab::async_copy_pipeline {

// Opens cuBLAS and makes a handle; the returned function is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const LoraShrink&, StreamRef)> library(const LoraShrink&, StreamRef);

}  // namespace fathom::lab::async_copy_pipeline
