// sum = x + residual; y = sum * weight / rms(sum)       T x D, fp32
//
// bytes   16 T D   all that moves
// flops   5 T D
// limit   memory bandwidth
// idea    the variant streamed alternates between reading (while squares are summed) and writing (while the
//         row is scaled). Here one walk reads row t + 1 into a buffer in L1 and writes row t out of another
#include "pipelined_rows.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

void pipelined(const RmsNorm& p, Context&) { pipelined_rows(p, 0, p.x.extent(0)); }

}  // namespace fathom::lab::fused_rmsnorm_cpu
