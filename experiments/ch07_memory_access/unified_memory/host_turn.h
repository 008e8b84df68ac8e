// What the host does in its turns, the same for all variants, and what the arrays hold at first.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda/check.h"
#include "pages.h"

namespace fathom::lab::unified_memory {

inline size_t array_bytes(int64_t pages) { return static_cast<size_t>(pages) * kPageBytes; }

inline void fill(float* array, char name, int64_t pages) {
  for (int64_t i = 0; i < pages * kWords; ++i) array[i] = content_of(name, i);
}

inline void host_writes(const Turns& p, float* x) {
  for (int64_t page = 0; page < p.pages(); ++page) x[page * kWords + word_of(page)] = p.stamp(page);
}

// Waits for the GPU's turn to end.
inline void host_reads(const Turns& p, const float* y, const float* c, StreamRef stream) {
  FATHOM_CUDA(cudaStreamSynchronize(stream));
  for (int64_t page = 0; page < p.pages(); ++page) {
    const int64_t word = page * kWords + word_of(page);
    p.out(page)        = y[word] + c[word];
  }
}

}  // namespace fathom::lab::unified_memory
