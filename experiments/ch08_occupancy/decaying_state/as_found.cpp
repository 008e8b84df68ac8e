// out = x + sum of the rows of a fading memory           tokens, rows of 64 values, fp32
//
// bytes   1 KiB a token with its trace, and 512 for each row in the list, from L2
// flops   2 for each value of a row in the list
// limit   none; how many rows are in the list decides
// idea    baseline: as it was found, with all suspects
#include "decode.h"

namespace fathom::lab::decaying_state {

void as_found(const Memory& p, Context&) { decode(p, {}); }

}  // namespace fathom::lab::decaying_state
