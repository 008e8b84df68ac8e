// out = softmax of each row                  R x C, fp32
//
// bytes   8 R C    12 R C in DRAM, where L3 holds a row: out is fetched before it is written
// flops   23 R C
// limit   bandwidth of the level that holds a row; the exponentials where that is near
// idea    the exponentials of a block are kept, with the maximum that held when they were taken; the second
//         walk corrects block by block. The walk for the maximum is gone, and no exponential is computed
//         twice
#include "kept_row.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

void kept(const Softmax& p, Context&) {
  for (int64_t r = 0; r < p.in.extent(0); ++r) kept_row(p, r);
}

}  // namespace fathom::lab::online_softmax_cpu
