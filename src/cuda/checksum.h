// A checksum of device memory, computed on the GPU.
#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace fathom {

// Adds the checksum of data[0, bytes) to *sum, which is device memory, on a stream of the current GPU. It
// depends on every byte and its position, and not on the grid.
void enqueue_checksum(const void* data, int64_t bytes, unsigned long long* sum, StreamRef stream);

}  // namespace fathom
