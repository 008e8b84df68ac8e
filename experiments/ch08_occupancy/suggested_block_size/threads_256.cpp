// out(i) = table(code(i))                    n codes of 4 bytes, fp32; strided_lookup.cu has bytes and limit
//
// idea    baseline: the usual 256 threads, in as many blocks as are resident: 3, or 24 warps
#include "strided_lookup.h"

namespace fathom::lab::suggested_block_size {

Call threads_256(const StridedLookup& p, StreamRef) {
  return [shape = resident(p.loads, 256)](const StridedLookup& q, StreamRef stream) {
    look_up(q, shape, stream);
  };
}

}  // namespace fathom::lab::suggested_block_size
