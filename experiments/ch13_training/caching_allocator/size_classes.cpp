// a serving step's allocations: replay.h
//
// idea    a cache by size classes (size_class_cache.h): after some steps every request finds a block, by one
//         look into a table, and no call of CUDA is made. Rounding wastes some of each block, and blocks of
//         one class do not serve another
#include "cuda/check.h"
#include "experiments/ch13_training/caching_allocator/size_class_cache.h"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

BlockSource cuda_source() {
  return {.allocate = [](int64_t bytes) -> void* {
            void* memory            = nullptr;
            const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
            if (error == cudaErrorMemoryAllocation) return (void)cudaGetLastError(), nullptr;
            FATHOM_CUDA(error);
            return memory;
          },
          .release = [](void* memory) { (void)cudaFree(memory); },
          .available =
              [] {
                size_t free = 0, total = 0;
                FATHOM_CUDA(cudaMemGetInfo(&free, &total));
                return static_cast<int64_t>(free);
              }};
}

}  // namespace

Call size_classes(const Replay& of, StreamRef) {
  return [cache = std::make_shared<SizeClassCache>(cuda_source()),
          where = std::make_shared<std::vector<void*>>(of.trace->bytes.size())](
             const Replay& p, StreamRef stream) { replay(p, *cache, *where, stream); };
}

}  // namespace fathom::lab::caching_allocator
