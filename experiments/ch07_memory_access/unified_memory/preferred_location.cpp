// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 4 KiB; host, GPU and host take turns
//
// link    x to the GPU, y back, both at the same time
// idea    each byte of x and y is used once in a turn, so no page is worth moving. They stay on the host
//         (cudaMemAdviseSetPreferredLocation) and are mapped for the GPU (cudaMemAdviseSetAccessedBy), whose
//         loads and stores cross the link. c is duplicated, as in read_mostly
#include "managed_arrays.h"

namespace fathom::lab::unified_memory {

Call preferred_location(const Turns& of, StreamRef stream) {
  const auto arrays = std::make_shared<const ManagedArrays>(of.pages());
  for (const float* array : {arrays->x(), arrays->y()}) {
    arrays->advise(array, cudaMemAdviseSetPreferredLocation, arrays->host());
    arrays->advise(array, cudaMemAdviseSetAccessedBy, arrays->gpu());
    arrays->prefetch(array, arrays->host(), stream);  // pages exist, so that the GPU's mapping can
  }
  arrays->advise(arrays->c(), cudaMemAdviseSetReadMostly, arrays->gpu());
  arrays->prefetch(arrays->c(), arrays->gpu(), stream);
  return [arrays](const Turns& p, StreamRef stream) {
    const ManagedArrays& on = *arrays;
    host_writes(p, on.x());
    pass(on.x(), on.c(), on.y(), p.pages(), stream);
    host_reads(p, on.y(), on.c(), stream);
  };
}

}  // namespace fathom::lab::unified_memory
