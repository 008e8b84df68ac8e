// Why CUDA refused to capture work in a graph, and what to do about it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace fathom {

// A reason and a remedy, for the errors that calls make because a stream is being captured (CUDA Programming
// Guide, "Prohibited and Unhandled Operations"); empty for any other error.
std::string capture_error_text(cudaError_t error);

}  // namespace fathom
