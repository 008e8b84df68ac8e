// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      and 12 n move: a line of out is fetched before it is written
// flops   n
// limit   memory bandwidth
// idea    baseline: one running sum, an addition's latency for each element
#include "scan.h"

namespace fathom::lab::prefix_scan_cpu {

void serial(const Scan& p, Context&) {
  const int64_t n = p.x.size();
  const float* x  = p.x.data();
  float* out      = p.out.data();
  float sum       = 0;
  for (int64_t i = 0; i < n; ++i) out[i] = sum += x[i];
}

}  // namespace fathom::lab::prefix_scan_cpu
