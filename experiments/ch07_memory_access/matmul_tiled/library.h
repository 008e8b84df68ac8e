// The library variant. Not in matmul.h, because <functional> costs every kernel file a second of compile
// time.
#pragma once

#include <functional>

#include "matmul.h"

namespace fathom::lab::matmul_tiled {

// Opens cuBLAS and makes a handle; the returned function is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const Matmul&, StreamRef)> library(const Matmul&, StreamRef);

}  // namespace fathom::lab::matmul_tiled
