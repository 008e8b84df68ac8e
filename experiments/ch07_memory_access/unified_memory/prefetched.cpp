// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 4 KiB; host, GPU and host take turns
//
// link    x, c and y to the GPU, and all three back
// idea    cudaMemPrefetchAsync brings each array before it is needed, in large pieces and without
//         faults; as many bytes cross the link as on demand
#include "managed_arrays.h"

namespace fathom::lab::unified_memory {

Call prefetched(const Turns& of, StreamRef stream) {
  const auto arrays = std::make_shared<const ManagedArrays>(of.pages());
  const Call call   = [arrays](const Turns& p, StreamRef stream) {
    const ManagedArrays& on = *arrays;
    host_writes(p, on.x());
    for (const float* array : {on.x(), on.c(), on.y()}) on.prefetch(array, on.gpu(), stream);
    pass(on.x(), on.c(), on.y(), p.pages(), stream);
    for (const float* array : {on.y(), on.c(), on.x()}) on.prefetch(array, on.host(), stream);
    host_reads(p, on.y(), on.c(), stream);
  };
  call(of, stream);  // the driver starts the threads that carry prefetches out
  return call;
}

}  // namespace fathom::lab::unified_memory
