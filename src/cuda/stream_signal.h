// Words in GPU memory by which a stream of one GPU makes a stream of another one wait: CUDA's stream memory
// operations, which no multiprocessor executes. Only builds with CUDA have them. Cheap to include: no header
// of CUDA.
//
// A wait has no time limit: a stream whose signal never comes does not end. Signal what a peer waits for
// before anything that may throw.
#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace fathom {

// *word = value, after all work that `stream` got before; what that work wrote is visible to whoever sees the
// value. `word` is in the memory of any GPU of this process that the stream's GPU can access. Both throw
// SystemError.
void signal(StreamRef stream, uint32_t* word, uint32_t value);

// Work that `stream` gets from now on waits until *word - value, as a signed number, is at least 0. `word` is
// in the memory of the stream's GPU.
void wait_for_signal(StreamRef stream, const uint32_t* word, uint32_t value);

}  // namespace fathom
