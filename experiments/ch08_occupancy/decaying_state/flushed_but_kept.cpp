// out = x + sum of the rows of a fading memory           tokens, rows of 64 values, fp32
//
// bytes   1 KiB a token with its trace, and 512 for each row in the list, from L2
// flops   2 for each value of a row in the list
// limit   none; how many rows are in the list decides
// idea    without subnormal numbers too, but rows of zeros stay in the list, as many as in as_found
#include "decode.h"

namespace fathom::lab::decaying_state {

void flushed_but_kept(const Memory& p, Context&) { decode(p, {.subnormals = false, .kept_above = -1}); }

}  // namespace fathom::lab::decaying_state
