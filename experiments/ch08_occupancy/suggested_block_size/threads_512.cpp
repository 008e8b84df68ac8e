// out(i) = table(code(i))                    n codes of 4 bytes, fp32; strided_lookup.cu has bytes and limit
//
// idea    512 threads: 3 blocks again, 48 warps
#include "strided_lookup.h"

namespace fathom::lab::suggested_block_size {

Call threads_512(const StridedLookup& p, StreamRef) {
  return [shape = resident(p.loads, 512)](const StridedLookup& q, StreamRef stream) {
    look_up(q, shape, stream);
  };
}

}  // namespace fathom::lab::suggested_block_size
