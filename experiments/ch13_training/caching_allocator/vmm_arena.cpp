// a serving step's allocations: replay.h
//
// idea    an arena that grows where it is (growing_arena.h), by the driver's virtual memory management:
//         addresses for all of the GPU's memory are reserved once, and memory is put behind them as it
//         is needed. Gaps serve requests of every size and merge again, so less is reserved than by
//         size classes; finding the best gap takes longer than a look into a table
#include <cudaTypedefs.h>

#include <string>

#include "cuda/check.h"
#include "cuda/per_device.h"
#include "experiments/ch13_training/caching_allocator/growing_arena.h"
#include "replay.h"

namespace fathom::lab::caching_allocator {
namespace {

// Found by the runtime, so that nothing links the driver's library.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  FATHOM_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || !function)
    throw SystemError(std::string("the driver has no ") + name + ": it is older than CUDA 12");
  return reinterpret_cast<Function>(function);
}

void expect_success(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw SystemError(std::string(call) + " failed (CUresult " + std::to_string(result) + ")");
}

// Addresses as many as the GPU has memory, and the memory put behind the first of them.
class VirtualRange {
 public:
  VirtualRange() {
    place_.type          = CU_MEM_ALLOCATION_TYPE_PINNED;
    place_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    place_.location.id   = current_gpu();
    size_t free = 0, total = 0;
    FATHOM_CUDA(cudaMemGetInfo(&free, &total));
    expect_success(granularity_of_(&granularity_, &place_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "cuMemGetAllocationGranularity");
    capacity_ = total / granularity_ * granularity_;
    expect_success(reserve_(&base_, capacity_, 0, 0, 0), "cuMemAddressReserve");
  }
  ~VirtualRange() {
    (void)cudaDeviceSynchronize();  // work that is enqueued uses the memory
    if (mapped_ > 0) (void)unmap_(base_, mapped_);
    (void)release_addresses_(base_, capacity_);
  }
  VirtualRange(const VirtualRange&)            = delete;
  VirtualRange& operator=(const VirtualRange&) = delete;

  AddressRange range() {
    return {.base        = reinterpret_cast<void*>(base_),
            .capacity    = static_cast<int64_t>(capacity_),
            .granularity = static_cast<int64_t>(granularity_),
            .map         = [this](int64_t offset, int64_t bytes) {
              return map(base_ + static_cast<size_t>(offset), static_cast<size_t>(bytes));
            }};
  }

 private:
  bool map(CUdeviceptr at, size_t bytes) {
    CUmemGenericAllocationHandle memory = 0;
    const CUresult created              = create_(&memory, bytes, &place_, 0);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
    expect_success(created, "cuMemCreate");
    const CUresult mapped = map_(at, bytes, 0, memory, 0);
    (void)release_(memory);  // the mapping keeps it
    expect_success(mapped, "cuMemMap");
    mapped_ += bytes;
    CUmemAccessDesc access = {};
    access.location        = place_.location;
    access.flags           = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect_success(allow_(at, bytes, &access, 1), "cuMemSetAccess");
    return true;
  }

  PFN_cuMemGetAllocationGranularity_v10020 granularity_of_ =
      driver_function<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity");
  PFN_cuMemAddressReserve_v10020 reserve_ =
      driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
  PFN_cuMemAddressFree_v10020 release_addresses_ =
      driver_function<PFN_cuMemAddressFree_v10020>("cuMemAddressFree");
  PFN_cuMemCreate_v10020 create_   = driver_function<PFN_cuMemCreate_v10020>("cuMemCreate");
  PFN_cuMemRelease_v10020 release_ = driver_function<PFN_cuMemRelease_v10020>("cuMemRelease");
  PFN_cuMemMap_v10020 map_         = driver_function<PFN_cuMemMap_v10020>("cuMemMap");
  PFN_cuMemUnmap_v10020 unmap_     = driver_function<PFN_cuMemUnmap_v10020>("cuMemUnmap");
  PFN_cuMemSetAccess_v10020 allow_ = driver_function<PFN_cuMemSetAccess_v10020>("cuMemSetAccess");

  CUmemAllocationProp place_ = {};
  size_t granularity_ = 0, capacity_ = 0, mapped_ = 0;
  CUdeviceptr base_ = 0;
};

struct VmmArena {
  VirtualRange range;
  GrowingArena arena{range.range()};
};

}  // namespace

Call vmm_arena(const Replay& of, StreamRef) {
  return [vmm   = std::make_shared<VmmArena>(),
          where = std::make_shared<std::vector<void*>>(of.trace->bytes.size())](
             const Replay& p, StreamRef stream) { replay(p, vmm->arena, *where, stream); };
}

}  // namespace fathom::lab::caching_allocator
