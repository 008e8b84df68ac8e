// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      and 12 n move: a line of out is fetched before it is written
// flops   14 n
// limit   memory bandwidth
// idea    the same two passes over a block at a time: the second finds the sines in L1
#include <algorithm>

#include "elementwise.h"
#include "passes.h"

namespace fathom::lab::fused_elementwise_cpu {

void blocked(const Elementwise& p, Context&) {
  constexpr int64_t kBlock = 2048;  // 8 KiB of x and 8 KiB of out: half an L1
  const int64_t n          = p.x.size();
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    sine_pass(p.x.data() + i, p.out.data() + i, m);
    root_pass(p.out.data() + i, p.out.data() + i, m);
  }
}

}  // namespace fathom::lab::fused_elementwise_cpu
