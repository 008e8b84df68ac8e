// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      and 12 n move: x crosses once, and a line of out is fetched before it is written
// flops   4 n executed, and n for the sums
// limit   memory bandwidth of all cores
// idea    both passes over a block that stays in L2, then the next block; the sum of all blocks before it is
//         handed from block to block (the chained scan that Merrill and Garland's decoupled look-back
//         improves for GPUs, NVR-2016-002). The blocks, and so the bits, do not depend on the threads.
#include "chained_scan.h"

namespace fathom::lab::prefix_scan_cpu {

void one_pass(const Scan& p, Context& context) { chained_scan<false>(p, context.pool); }

}  // namespace fathom::lab::prefix_scan_cpu
