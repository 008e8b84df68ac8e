// The op with as many positions for each multiprocessor as for every other: a sequence is cut wherever a
// share is full.
#include "tail.h"

namespace fathom::lab::decode_tail {

void equal_payload(const DecodeTail& p, StreamRef stream) {
  kernels::paged_decode_attention(p.op(0), kernels::PlainScore{}, stream);
}

}  // namespace fathom::lab::decode_tail
