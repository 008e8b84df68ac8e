// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 4 KiB; host, GPU and host take turns
//
// link    x and y to the GPU, y back
// idea    cudaMemAdviseSetReadMostly: a page that is read elsewhere is duplicated, and a write drops the
//         duplicates. c is then in both places for good, and x, which the host alone writes, need not come
//         back
#include "managed_arrays.h"

namespace fathom::lab::unified_memory {

Call read_mostly(const Turns& of, StreamRef stream) {
  const auto arrays = std::make_shared<const ManagedArrays>(of.pages());
  for (const float* array : {arrays->x(), arrays->c()})
    arrays->advise(array, cudaMemAdviseSetReadMostly, arrays->gpu());
  arrays->prefetch(arrays->c(), arrays->gpu(), stream);
  const Call call = [arrays](const Turns& p, StreamRef stream) {
    const ManagedArrays& on = *arrays;
    host_writes(p, on.x());
    for (const float* array : {on.x(), on.y()}) on.prefetch(array, on.gpu(), stream);
    pass(on.x(), on.c(), on.y(), p.pages(), stream);
    on.prefetch(on.y(), on.host(), stream);
    host_reads(p, on.y(), on.c(), stream);
  };
  call(of, stream);  // the driver starts the threads that carry prefetches out
  return call;
}

}  // namespace fathom::lab::unified_memory
