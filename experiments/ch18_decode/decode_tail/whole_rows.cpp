// The op with a CTA for each sequence and key-value head, whatever its context.
#include "tail.h"

namespace fathom::lab::decode_tail {

void whole_rows(const DecodeTail& p, StreamRef stream) {
  kernels::paged_decode_attention(p.op(1), kernels::PlainScore{}, stream);
}

}  // namespace fathom::lab::decode_tail
