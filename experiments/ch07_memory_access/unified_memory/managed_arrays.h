// The three arrays in managed memory: one address each, for the host and for the current GPU, and pages that
// migrate. They are small beside the GPU's free memory: memory that does not fit is another subject.
#pragma once

#include "cuda/per_device.h"
#include "host_turn.h"
#include "lab/problem.h"

namespace fathom::lab::unified_memory {

class ManagedArrays {
 public:
  explicit ManagedArrays(int64_t pages) : bytes_(array_bytes(pages)) {
    int concurrent = 0;
    FATHOM_CUDA(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, current_gpu()));
    if (!concurrent)
      throw Unavailable("needs_feature", "concurrentManagedAccess: pages that migrate by faults (Linux)");
    size_t free = 0, total = 0;
    FATHOM_CUDA(cudaMemGetInfo(&free, &total));
    if (8 * bytes_ > free)
      throw Unavailable("needs_memory", "three managed arrays are to be at most 3/8 of the free GPU memory");
    x_ = allocate(), c_ = allocate(), y_ = allocate();
    fill(x(), 'x', pages);
    fill(c(), 'c', pages);
  }

  float* x() const { return x_.get(); }
  float* c() const { return c_.get(); }
  float* y() const { return y_.get(); }

  // Pages that are elsewhere move, when the stream gets there.
  void prefetch(const float* array, cudaMemLocation to, StreamRef stream) const {
    if (bytes_ > 0) FATHOM_CUDA(cudaMemPrefetchAsync(array, bytes_, to, 0, stream));
  }
  void advise(const float* array, cudaMemoryAdvise advice, cudaMemLocation about) const {
    if (bytes_ > 0) FATHOM_CUDA(cudaMemAdvise(array, bytes_, advice, about));
  }

  static cudaMemLocation host() { return {.type = cudaMemLocationTypeHost, .id = 0}; }
  static cudaMemLocation gpu() { return {.type = cudaMemLocationTypeDevice, .id = current_gpu()}; }

 private:
  struct Free {
    void operator()(float* memory) const { (void)cudaFree(memory); }
  };
  using Owner = std::unique_ptr<float, Free>;
  Owner allocate() const {
    if (bytes_ == 0) return nullptr;
    void* memory = nullptr;
    FATHOM_CUDA(cudaMallocManaged(&memory, bytes_));
    return Owner(static_cast<float*>(memory));
  }

  size_t bytes_;
  Owner x_, c_, y_;
};

}  // namespace fathom::lab::unified_memory
