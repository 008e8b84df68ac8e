// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 4 KiB; host, GPU and host take turns
//
// link    x, c and y to the GPU, and all three back
// idea    one array each in managed memory, and nothing said: whoever touches a page that is elsewhere has a
//         fault, and the driver brings the page and some around it
#include "managed_arrays.h"

namespace fathom::lab::unified_memory {

Call on_demand(const Turns& of, StreamRef) {
  return [arrays = std::make_shared<const ManagedArrays>(of.pages())](const Turns& p, StreamRef stream) {
    const ManagedArrays& on = *arrays;
    host_writes(p, on.x());
    pass(on.x(), on.c(), on.y(), p.pages(), stream);
    host_reads(p, on.y(), on.c(), stream);
  };
}

}  // namespace fathom::lab::unified_memory
