// out(i) = table(code(i))                    n codes of 4 bytes, fp32; strided_lookup.cu has bytes and limit
//
// idea    the runtime knows registers, shared memory and the limits of this GPU: it answers the block
//         size with the most resident threads, and the number of blocks that reaches it
#include "strided_lookup.h"

namespace fathom::lab::suggested_block_size {

Call suggested_threads(const StridedLookup& p, StreamRef) {
  return
      [shape = suggested(p.loads)](const StridedLookup& q, StreamRef stream) { look_up(q, shape, stream); };
}

}  // namespace fathom::lab::suggested_block_size
