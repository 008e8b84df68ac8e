// a serving step's allocations: replay.h
//
// idea    baseline: cudaMalloc and cudaFree for each tensor. cudaFree waits until the GPU is idle, and both
//         change its page tables
#include <algorithm>

#include "cuda/check.h"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

struct CudaMalloc {
  int64_t most_reserved = 0;

  void* allocate(int64_t bytes) {
    void* memory = nullptr;
    FATHOM_CUDA(cudaMalloc(&memory, static_cast<size_t>(bytes)));
    return memory;
  }
  void free(void* memory) { FATHOM_CUDA(cudaFree(memory)); }
  int64_t reserved() const { return most_reserved; }
};

int64_t free_bytes() {
  size_t free = 0, total = 0;
  FATHOM_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

// CUDA does not say what it takes for an allocation, so a replay without work asks how much is left.
int64_t most_reserved(const Trace& trace, CudaMalloc& allocator, std::vector<void*>& where) {
  const int64_t before = free_bytes();
  int64_t least        = before;
  for (const Trace::Event& event : trace.events) {
    void*& memory = where[static_cast<size_t>(event.allocation)];
    if (event.frees) {
      allocator.free(memory);
    } else {
      memory = allocator.allocate(trace.bytes[static_cast<size_t>(event.allocation)]);
      least  = std::min(least, free_bytes());
    }
  }
  return before - least;
}

}  // namespace

Call cuda_malloc(const Replay& of, StreamRef) {
  const auto where = std::make_shared<std::vector<void*>>(of.trace->bytes.size());
  CudaMalloc allocator;
  allocator.most_reserved = most_reserved(*of.trace, allocator, *where);
  return
      [allocator, where](const Replay& p, StreamRef stream) mutable { replay(p, allocator, *where, stream); };
}

}  // namespace fathom::lab::caching_allocator
