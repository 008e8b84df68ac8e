// a serving step's allocations: replay.h
//
// idea    CUDA's own caching allocator: cudaMallocFromPoolAsync and cudaFreeAsync take their turn in
//         the stream, and a release threshold that is never reached keeps the pool's memory for the
//         next step
#include "cuda/check.h"
#include "cuda/per_device.h"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

class Pool {
 public:
  explicit Pool(StreamRef stream) : stream_(stream) {
    cudaMemPoolProps properties = {};
    properties.allocType        = cudaMemAllocationTypePinned;
    properties.location         = {.type = cudaMemLocationTypeDevice, .id = current_gpu()};
    FATHOM_CUDA(cudaMemPoolCreate(&pool_, &properties));
    uint64_t threshold = UINT64_MAX;
    FATHOM_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
  }
  ~Pool() { (void)cudaMemPoolDestroy(pool_); }
  Pool(const Pool&)            = delete;
  Pool& operator=(const Pool&) = delete;

  void* allocate(int64_t bytes) {
    void* memory = nullptr;
    FATHOM_CUDA(cudaMallocFromPoolAsync(&memory, static_cast<size_t>(bytes), pool_, stream_));
    return memory;
  }
  void free(void* memory) { FATHOM_CUDA(cudaFreeAsync(memory, stream_)); }
  int64_t reserved() const {
    uint64_t bytes = 0;
    FATHOM_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &bytes));
    return static_cast<int64_t>(bytes);
  }

 private:
  cudaMemPool_t pool_ = nullptr;
  StreamRef stream_;
};

}  // namespace

Call stream_ordered_pool(const Replay& of, StreamRef stream) {
  return [pool  = std::make_shared<Pool>(stream),
          where = std::make_shared<std::vector<void*>>(of.trace->bytes.size())](
             const Replay& p, StreamRef stream) { replay(p, *pool, *where, stream); };
}

}  // namespace fathom::lab::caching_allocator
