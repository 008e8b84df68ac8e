// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      and 12 n move: a line of out is fetched before it is written
// flops   4 n executed and as many shuffles, for n that are needed
// limit   memory bandwidth
// idea    a scan of eight numbers in a register takes three steps and waits for nobody. From one vector to
//         the next passes a single addition: its latency for eight elements
#include "scan.h"
#include "scan_piece.h"

namespace fathom::lab::prefix_scan_cpu {

void simd(const Scan& p, Context&) { scan_piece<false>(p.x.data(), p.out.data(), p.x.size(), 0); }

}  // namespace fathom::lab::prefix_scan_cpu
