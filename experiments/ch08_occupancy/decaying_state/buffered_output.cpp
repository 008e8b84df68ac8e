// out = x + sum of the rows of a fading memory           tokens, rows of 64 values, fp32
//
// bytes   1 KiB a token with its trace, and 512 for each row in the list, from L2
// flops   2 for each value of a row in the list
// limit   none; how many rows are in the list decides
// idea    without suspect C: sixteen tokens leave in one system call
#include "decode.h"

namespace fathom::lab::decaying_state {

void buffered_output(const Memory& p, Context&) { decode(p, {.flush_each_token = false}); }

}  // namespace fathom::lab::decaying_state
