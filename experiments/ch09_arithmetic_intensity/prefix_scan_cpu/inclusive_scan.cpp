// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      and 12 n move: a line of out is fetched before it is written
// flops   n
// limit   memory bandwidth
// idea    the standard library's, without an execution policy: the parallel ones need a library of their own
#include <numeric>

#include "scan.h"

namespace fathom::lab::prefix_scan_cpu {

void inclusive_scan(const Scan& p, Context&) {
  std::inclusive_scan(p.x.data(), p.x.data() + p.x.size(), p.out.data());
}

}  // namespace fathom::lab::prefix_scan_cpu
