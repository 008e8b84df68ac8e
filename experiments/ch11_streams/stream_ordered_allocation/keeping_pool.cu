// out(l, i) = in(l, i)^2 + in(l, n - 1 - i)^2        8 layers, fp32, the squares in memory of their own
//
// bytes   8 n a layer, and 8 n more for the squares, which L2 holds if n is small
// limit   memory bandwidth; of small n the kernels, some 2 us each
// idea    a pool of our own, whose release threshold is so high that it keeps its memory for the next call
#include <cstdint>
#include <memory>

#include "cuda/per_device.h"
#include "layer.cuh"

namespace fathom::lab::stream_ordered_allocation {
namespace {

struct Pool {
  cudaMemPool_t pool = nullptr;

  Pool() {
    cudaMemPoolProps properties = {};
    properties.allocType        = cudaMemAllocationTypePinned;
    properties.location         = {.type = cudaMemLocationTypeDevice, .id = current_gpu()};
    FATHOM_CUDA(cudaMemPoolCreate(&pool, &properties));
    uint64_t threshold = UINT64_MAX;  // bytes that the pool may keep when somebody waits
    FATHOM_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  ~Pool() { (void)cudaMemPoolDestroy(pool); }
  Pool(const Pool&)            = delete;
  Pool& operator=(const Pool&) = delete;
};

}  // namespace

Call keeping_pool(const Layers&, StreamRef) {
  return [pool = std::make_shared<const Pool>()](const Layers& p, StreamRef stream) {
    run_layers(p, stream, [&](size_t bytes) {
      void* memory = nullptr;
      FATHOM_CUDA(cudaMallocFromPoolAsync(&memory, bytes, pool->pool, stream));
      return std::unique_ptr<float, FreeInStream>(static_cast<float*>(memory), FreeInStream{stream});
    });
  };
}

}  // namespace fathom::lab::stream_ordered_allocation
