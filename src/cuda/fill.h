// Fills of device memory on the GPU: Device::set_words, fill_uniform and fill_normal, enqueued on a stream of
// the current GPU.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/stream.h"

namespace fathom {

void enqueue_set_words(void* to, int64_t bytes, uint32_t word, StreamRef stream);
void enqueue_fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi,
                          StreamRef stream);
void enqueue_fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean, double deviation,
                         StreamRef stream);

}  // namespace fathom
