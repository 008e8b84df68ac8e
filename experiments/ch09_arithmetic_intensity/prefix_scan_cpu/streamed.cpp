// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      all that moves
// flops   4 n executed, and n for the sums
// limit   memory bandwidth of all cores
// idea    one_pass, and the result is written past the caches: no line is fetched only to be overwritten
#include "chained_scan.h"

namespace fathom::lab::prefix_scan_cpu {

void streamed(const Scan& p, Context& context) { chained_scan<true>(p, context.pool); }

}  // namespace fathom::lab::prefix_scan_cpu
